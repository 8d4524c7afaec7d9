//! What the executed instructions are.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::callgrind::Executed;

/// The disassembly of each object that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Disassemblies {
    objects: HashMap<PathBuf, HashMap<u64, String>>,
}

impl Disassemblies {
    /// The executed instructions that lock the bus: each with its function.
    pub(crate) fn locked(&mut self, executed: &[Executed]) -> Result<Vec<String>> {
        let mut locked = Vec::new();
        for one in executed {
            let text = self.instruction(one)?;
            if is_locked(text) {
                locked.push(format!("`{text}` in {}", one.function));
            }
        }
        locked.sort();
        locked.dedup();
        Ok(locked)
    }

    /// The executed instructions of each function, in order of address, with how often one request (or each `step`
    /// requests, as a batch) executes each of `count` requests.
    pub(crate) fn listing(
        &mut self,
        executed: &[Executed],
        step: u64,
        count: u64,
    ) -> Result<String> {
        let mut functions: BTreeMap<&str, BTreeMap<u64, (&Executed, u64)>> = BTreeMap::new();
        for one in executed {
            let function = functions.entry(&one.function).or_default();
            function.entry(one.address).or_insert((one, 0)).1 += one.times;
        }
        // CAST: far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let share = |times: u64| times as f64 * step as f64 / count as f64;
        let mut listing = String::new();
        for (name, instructions) in functions {
            let sum: u64 = instructions.values().map(|(_, times)| times).sum();
            if share(sum) < 0.5 {
                continue;
            }
            writeln!(listing, "\n{name}: {:.1}", share(sum))?;
            for (one, times) in instructions.values() {
                let text = self.instruction(one)?;
                writeln!(listing, "{:8.2}  {:x}  {text}", share(*times), one.address)?;
            }
        }
        Ok(listing)
    }

    fn instruction(&mut self, one: &Executed) -> Result<&str> {
        if !self.objects.contains_key(&one.object) {
            self.objects
                .insert(one.object.clone(), disassemble(&one.object)?);
        }
        let text = self.objects[&one.object].get(&one.address);
        text.map(String::as_str).with_context(|| {
            format!(
                "objdump shows no instruction at {:#x} of {}",
                one.address,
                one.object.display()
            )
        })
    }
}

fn disassemble(object: &Path) -> Result<HashMap<u64, String>> {
    let output = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(object)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run objdump")?;
    if !output.status.success() {
        bail!("objdump cannot disassemble {}", object.display());
    }
    Ok(instructions(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines such as `   2a950:\tpush   %rbp`.
fn instructions(text: &str) -> HashMap<u64, String> {
    text.lines()
        .filter_map(|line| {
            let (address, instruction) = line.split_once(":\t")?;
            let address = u64::from_str_radix(address.trim(), 16).ok()?;
            let words: Vec<&str> = instruction.split_whitespace().collect();
            Some((address, words.join(" ")))
        })
        .collect()
}

/// An exchange with memory locks by itself.
fn is_locked(instruction: &str) -> bool {
    instruction.starts_with("lock ") || instruction.starts_with("xchg") && instruction.contains('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_by_address() {
        let text = "\nt:     file format elf64-x86-64\n\n000000000002a950 <loop_rust_send>:\n   2a950:\tpush   %rbp\n   2a951:\tlock cmpxchg %rcx,(%rdx)\n";
        let found = instructions(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&0x2a950], "push %rbp");
        assert!(is_locked(&found[&0x2a951]));
    }

    #[test]
    fn an_exchange_with_memory_is_locked_and_one_of_registers_is_not() {
        assert!(is_locked("xchg %eax,0x8(%rdx)"));
        assert!(is_locked("xchgl %eax,(%rdx)"));
        assert!(!is_locked("xchg %ax,%ax"));
        assert!(!is_locked("mov %rax,(%rdx)"));
    }
}
