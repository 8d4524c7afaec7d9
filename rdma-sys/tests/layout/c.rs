//! Asks the C compiler.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Names headers other than the installed ones.
const INCLUDE_DIR: &str = "RDMA_CORE_INCLUDE_DIR";

/// Above the expressions. The last line makes the first expression line 1.
const PROLOGUE: &str = "\
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#define SHOW(index, expression) printf(\"%d %llu\\n\", index, (unsigned long long)(expression));
int main(void) {
#line 1 \"expressions\"
";

/// The values of constant expressions, in the order given; none for one that does not compile.
pub(crate) fn evaluate(expressions: &[&str]) -> Vec<Option<u64>> {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the target folder can be written to");
    let mut left_out = BTreeSet::new();
    // A name that is missing inside a structure that is missing shows only once the structure's line is gone, and some
    // compilers stop after a number of errors.
    let program = loop {
        let output = compile(&folder, expressions, &left_out);
        if output.status.success() {
            break folder.join("layout");
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let bad = lines_with_errors(&text);
        let known = left_out.len();
        left_out.extend(bad.iter().filter_map(|line| line.checked_sub(1)));
        assert!(
            left_out.len() > known && left_out.iter().all(|index| *index < expressions.len()),
            "the C program does not compile:\n{text}"
        );
    };
    let output = Command::new(&program)
        .output()
        .expect("the C program starts");
    assert!(
        output.status.success(),
        "the C program failed: {}",
        output.status
    );
    let mut values = vec![None; expressions.len()];
    for line in String::from_utf8(output.stdout)
        .expect("the C program prints numbers")
        .lines()
    {
        let (index, value) = line.split_once(' ').expect("two numbers a line");
        let index: usize = index.parse().expect("an index");
        values[index] = Some(value.parse().expect("a value"));
    }
    std::fs::remove_dir_all(&folder).expect("the folder made above can be removed");
    values
}

fn compile(folder: &Path, expressions: &[&str], left_out: &BTreeSet<usize>) -> Output {
    let mut text = String::from(PROLOGUE);
    for (index, expression) in expressions.iter().enumerate() {
        if left_out.contains(&index) {
            text.push('\n');
        } else {
            writeln!(text, "SHOW({index}, {expression})").expect("a String takes all");
        }
    }
    text.push_str("return 0;\n}\n");
    let source = folder.join("layout.c");
    std::fs::write(&source, text).expect("the target folder can be written to");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    Command::new(&compiler)
        .args(include_flags())
        .arg("-o")
        .arg(folder.join("layout"))
        .arg(&source)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| {
            panic!("this test needs a C compiler (Debian: gcc), and {compiler:?} gives: {error}")
        })
}

/// The numbers of the lines of expressions that the compiler finds wrong.
fn lines_with_errors(text: &str) -> BTreeSet<usize> {
    let number = |line: &str| {
        let (place, message) = line.strip_prefix("expressions:")?.split_once(": ")?;
        message
            .starts_with("error:")
            .then(|| place.split(':').next()?.parse().ok())?
    };
    text.lines().filter_map(number).collect()
}

/// The headers' version of rdma-core, if pkg-config knows it: the third number of `1.<ABI level>.<version>`.
pub(crate) fn headers_version() -> Option<u32> {
    if env::var_os(INCLUDE_DIR).is_some() {
        return None;
    }
    pkg_config("--modversion")?
        .lines()
        .next()?
        .split('.')
        .nth(2)?
        .parse()
        .ok()
}

/// Where the headers are: as told, else where pkg-config says, else where the compiler looks.
fn include_flags() -> Vec<String> {
    if let Ok(folder) = env::var(INCLUDE_DIR) {
        return vec![format!("-I{folder}")];
    }
    pkg_config("--cflags")
        .unwrap_or_default()
        .split_whitespace()
        .map(String::from)
        .collect()
}

fn pkg_config(question: &str) -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(program)
        .args([question, "librdmacm", "libibverbs"])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
