//! Running cargo, and the executables it says it has built.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::setup;

/// An executable that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The target's name: `device_accept`.
    pub(crate) name: String,
    /// What kind of target it is: `lib`, `bin`, `example`, `test`.
    pub(crate) kind: String,
    /// The manifest of its package.
    pub(crate) manifest: PathBuf,
    /// The file.
    pub(crate) path: PathBuf,
    /// Whether it is a test program.
    pub(crate) is_test: bool,
}

impl Executable {
    /// The folder of its package, which is where cargo runs tests.
    pub(crate) fn package_dir(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.manifest)
    }
}

/// cargo, the one that runs us if one does, in the workspace's folder.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(setup::workspace());
    command
}

/// Runs cargo with the messages for a person on standard error, and returns the executables it built.
pub(crate) fn build(args: &[&str]) -> Result<Vec<Executable>> {
    let shown = format!("cargo {}", args.join(" "));
    let output = command()
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed; what it said is above");
    }
    let messages = String::from_utf8(output.stdout)
        .with_context(|| format!("`{shown}` did not answer in UTF-8"))?;
    Ok(executables(&messages))
}

/// Builds one of our programs with the release profile, and says where it is.
pub(crate) fn program(name: &str, which: &[&str]) -> Result<PathBuf> {
    let built = build(&[&["build", "--release"], which].concat())?;
    let found = built.into_iter().find(|executable| executable.name == name);
    let found = found.with_context(|| format!("cargo built no program called {name}"))?;
    Ok(found.path)
}

/// Picks the executables out of cargo's messages, one JSON value a line.
fn executables(messages: &str) -> Vec<Executable> {
    messages.lines().filter_map(executable).collect()
}

fn executable(message: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let target = &message["target"];
    Some(Executable {
        name: target["name"].as_str()?.to_owned(),
        kind: target["kind"][0].as_str()?.to_owned(),
        manifest: message["manifest_path"].as_str()?.into(),
        path: message["executable"].as_str()?.into(),
        is_test: message["profile"]["test"].as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_picked_out_of_everything_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/Cargo.toml","target":{"kind":["lib"],"name":"rdmacm"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/Cargo.toml","target":{"kind":["test"],"name":"device_accept"},"profile":{"test":true},"executable":"/t/device_accept-0123"}"#,
            "\n",
            r#"{"reason":"build-script-executed","package_id":"p"}"#,
            "\na line that is not JSON\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executables(messages),
            [Executable {
                name: "device_accept".into(),
                kind: "test".into(),
                manifest: "/w/Cargo.toml".into(),
                path: "/t/device_accept-0123".into(),
                is_test: true,
            }]
        );
    }
}
