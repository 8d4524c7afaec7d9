//! The environment that the command gets in the guest: the user's own, but for what would be wrong there.

use std::ffi::{OsStr, OsString};

/// Variables that lead to sockets, descriptors and sessions which the guest does not have.
const LEFT_OUT: [&str; 12] = [
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "MFLAGS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "NOTIFY_SOCKET",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "_",
];

/// Where `ip`, `rdma` and other programs for root are; a user's path often lacks them.
const SYSTEM_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Returns the whole environment, `KEY=VALUE` each: `own` changed by `set`.
pub(crate) fn for_guest(
    own: impl Iterator<Item = (OsString, OsString)>,
    set: &[(OsString, OsString)],
) -> Vec<OsString> {
    let mut variables: Vec<(OsString, OsString)> = own
        .filter(|(key, _)| !LEFT_OUT.iter().any(|name| key == name))
        .collect();
    // In the guest the command is root, whoever started it.
    let root = [("USER", "root"), ("LOGNAME", "root")]
        .map(|(key, value)| (OsString::from(key), OsString::from(value)));
    let path = variables
        .iter()
        .find(|(key, _)| key == "PATH")
        .map(|(_, value)| value.clone())
        .unwrap_or_default();
    let path = (OsString::from("PATH"), with_system_path(&path));
    for (key, value) in root.iter().chain([&path]).chain(set) {
        variables.retain(|(name, _)| name != key);
        variables.push((key.clone(), value.clone()));
    }
    variables
        .into_iter()
        .map(|(key, value)| [key, value].join(OsStr::new("=")))
        .collect()
}

fn with_system_path(path: &OsStr) -> OsString {
    let mut folders: Vec<_> = std::env::split_paths(path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    for folder in SYSTEM_PATH {
        if !folders.iter().any(|known| known.as_os_str() == folder) {
            folders.push(folder.into());
        }
    }
    std::env::join_paths(folders).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }

    #[test]
    fn the_users_variables_go_along_and_sockets_do_not() {
        let own = pairs(&[
            ("HOME", "/home/u"),
            ("RUST_BACKTRACE", "1"),
            ("SSH_AUTH_SOCK", "/x"),
            ("USER", "u"),
            ("A", "1"),
        ]);
        let variables = for_guest(own.into_iter(), &pairs(&[("A", "2"), ("B", "3")]));
        for wanted in [
            "HOME=/home/u",
            "RUST_BACKTRACE=1",
            "USER=root",
            "A=2",
            "B=3",
        ] {
            assert!(
                variables.iter().any(|variable| variable == wanted),
                "{wanted} in {variables:?}"
            );
        }
        assert!(
            !variables
                .iter()
                .any(|variable| variable == "A=1" || variable == "SSH_AUTH_SOCK=/x")
        );
    }

    #[test]
    fn the_path_reaches_the_programs_for_root() {
        assert_eq!(
            with_system_path(OsStr::new("/u/bin:/usr/bin")),
            "/u/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
        );
        assert_eq!(
            with_system_path(OsStr::new("")),
            SYSTEM_PATH.join(":").as_str()
        );
    }
}
