//! What must not compile, each beside a twin that does.
//!
//! Every case in `tests/ui` starts with the error that it must give, as `// error[CODE]: why`. The whole text of the compiler
//! is compared only where it is the version that `tests/ui/RUSTC` names; other versions word their errors differently.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cases, without their twins.
fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir("tests/ui")
        .expect("the folder of the cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| !is_twin(path))
        .collect();
    cases.sort();
    cases
}

fn is_twin(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default();
    name.to_string_lossy().ends_with("_twin")
}

/// The code that the first line of a case asks for, such as `E0382`.
fn wanted_code(case: &Path) -> String {
    let text = fs::read_to_string(case).expect("a case");
    let code = text
        .strip_prefix("// error[")
        .and_then(|rest| rest.split(']').next());
    code.unwrap_or_else(|| {
        panic!(
            "{}: the first line must be `// error[CODE]: why`",
            case.display()
        )
    })
    .to_owned()
}

fn compiler() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("rustc");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn every_case_has_a_twin_and_an_error_of_its_own() {
    let cases = cases();
    assert_eq!(cases.len(), 27, "{cases:?}");
    for case in cases {
        let stem = case
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let twin = case.with_file_name(format!("{stem}_twin.rs"));
        assert!(twin.exists(), "{} has no twin", case.display());
        let stderr = fs::read_to_string(case.with_extension("stderr")).expect("a .stderr");
        let first = stderr.lines().next().unwrap_or_default();
        let wanted = format!("error[{}]", wanted_code(&case));
        assert!(first.starts_with(&wanted), "{}: {first}", case.display());
    }
}

#[test]
fn what_must_not_compile_does_not() {
    let named = fs::read_to_string("tests/ui/RUSTC").expect("tests/ui/RUSTC");
    let same = compiler().starts_with(&format!("rustc {} ", named.trim()));
    let ui = trybuild::TestCases::new();
    ui.pass("tests/ui/*_twin.rs");
    for case in cases() {
        if same {
            ui.compile_fail(&case);
        } else {
            check_code(&case);
        }
    }
}

/// Compiles a case against the crate that this test was built with, and wants its error code.
fn check_code(case: &Path) {
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().expect("target/PROFILE/deps");
    let newest = fs::read_dir(deps)
        .expect("the folder of the test")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("librdmacm-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
        .expect("the crate's own library");
    let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args([
            "--edition=2024",
            "--crate-type=bin",
            "--emit=metadata",
            "-o",
            "/dev/null",
        ])
        .arg(format!("-Ldependency={}", deps.display()))
        .arg(format!("--extern=rdmacm={}", newest.display()))
        .arg(case)
        .output()
        .expect("rustc");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{} compiles", case.display());
    let wanted = format!("error[{}]", wanted_code(case));
    assert!(stderr.contains(&wanted), "{}: {stderr}", case.display());
}
