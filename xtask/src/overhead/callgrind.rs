//! What callgrind wrote.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// One run of a loop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// How often each was executed.
    pub(crate) executed: Vec<Executed>,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The program or library that it is in.
    pub(crate) object: PathBuf,
    pub(crate) function: String,
    /// Where in the object.
    pub(crate) address: u64,
    pub(crate) times: u64,
}

impl Profile {
    /// What was executed more often than in a shorter run: what is in the loop.
    pub(crate) fn beyond(&self, less: &Self) -> Vec<Executed> {
        let mut times: BTreeMap<_, u64> = BTreeMap::new();
        for one in &less.executed {
            *times.entry(one.place()).or_default() += one.times;
        }
        let mut beyond: BTreeMap<_, Executed> = BTreeMap::new();
        for one in &self.executed {
            let entry = beyond.entry(one.place()).or_insert_with(|| Executed {
                times: 0,
                ..one.clone()
            });
            entry.times += one.times;
        }
        beyond
            .into_values()
            .filter_map(|mut one| {
                let before = times.get(&one.place()).copied().unwrap_or(0);
                one.times = one.times.checked_sub(before).filter(|times| *times > 0)?;
                Some(one)
            })
            .collect()
    }
}

impl Executed {
    fn place(&self) -> (PathBuf, String, u64) {
        (self.object.clone(), self.function.clone(), self.address)
    }
}

/// Reads a file that was written with `--dump-instr=yes` and without compression.
pub(crate) fn read(file: &Path) -> io::Result<Profile> {
    parse(&fs::read_to_string(file)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not as expected"))
}

/// Of a call there are two lines: `calls=` and its position with what the callee cost, which is counted there.
fn parse(text: &str) -> Option<Profile> {
    let mut total = None;
    let mut executed = Vec::new();
    let (mut object, mut function) = (PathBuf::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(number) = line.strip_prefix("totals: ") {
            total = Some(number.trim().parse().ok()?);
        } else if let Some(name) = line.strip_prefix("ob=") {
            object = name.into();
        } else if let Some(name) = line.strip_prefix("fn=") {
            name.clone_into(&mut function);
        } else if line.starts_with("calls=") {
            lines.next()?;
        } else if let Some(rest) = line.strip_prefix("0x") {
            let mut words = rest.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let times = words.nth(1)?.parse().ok()?;
            executed.push(Executed {
                object: object.clone(),
                function: function.clone(),
                address,
                times,
            });
        }
    }
    let counted: u64 = executed.iter().map(|one| one.times).sum();
    (Some(counted) == total).then_some(Profile { executed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
positions: instr line
events: Ir
summary: 7

ob=/t/overhead
fl=???
fn=loop_rust_send
0x2a950 0 3
cob=/t/overhead
cfn=null_poll_cq
calls=2 0x89690 0
0x2a953 0 4

fn=null_poll_cq
0x89690 0 4

totals: 7
";

    #[test]
    fn the_cost_of_a_callee_counts_once() {
        let profile = parse(TEXT).unwrap();
        let places: Vec<_> = profile
            .executed
            .iter()
            .map(|one| (one.function.as_str(), one.address, one.times))
            .collect();
        assert_eq!(
            places,
            [("loop_rust_send", 0x2a950, 3), ("null_poll_cq", 0x89690, 4)]
        );
        assert_eq!(profile.executed[0].object, Path::new("/t/overhead"));
    }

    #[test]
    fn what_a_longer_run_does_not_do_more_often_is_not_of_the_loop() {
        let less = parse(TEXT).unwrap();
        assert_eq!(less.beyond(&less), []);
        let more = TEXT.replace("0x2a953 0 4\n\n", "0x2a953 0 4\n0x2a957 0 2\n\n");
        let more = more
            .replace("0x89690 0 4", "0x89690 0 9")
            .replace("totals: 7", "totals: 14");
        let beyond = parse(&more).unwrap().beyond(&less);
        let times: Vec<_> = beyond.iter().map(|one| (one.address, one.times)).collect();
        assert_eq!(times, [(0x2a957, 2), (0x89690, 5)]);
    }

    #[test]
    fn a_sum_that_differs_is_no_profile() {
        assert_eq!(parse(&TEXT.replace("totals: 7", "totals: 8")), None);
        assert_eq!(parse(""), None);
    }
}
