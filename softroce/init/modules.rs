//! Loads the kernel modules that the initial file system holds.

use std::{
    ffi::CStr,
    fs::{self, File},
    path::Path,
};

use crate::sys;

/// Loads every module in a folder, in the order of the file names (`NN-name.ko`), which the host has put in the
/// order of their dependencies.
pub(crate) fn load_folder(folder: &str) -> Result<(), String> {
    let mut paths: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return Ok(()),
    };
    paths.sort();
    paths.iter().try_for_each(|path| load(path))
}

/// Tells whether a folder holds a module of that name.
pub(crate) fn folder_has(folder: &str, name: &str) -> bool {
    let suffix = format!("-{name}.ko");
    fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with(&suffix))
    })
}

fn load(path: &Path) -> Result<(), String> {
    const EEXIST: i32 = 17;
    let parameters = parameters(path);
    let result = File::open(path).and_then(|file| sys::load_module(&file, parameters));
    match result {
        Err(error) if error.raw_os_error() == Some(EEXIST) || is_optional(path) => Ok(()),
        Err(error) => Err(format!(
            "cannot load the kernel module {}: {error}",
            path.display()
        )),
        Ok(()) => Ok(()),
    }
}

/// A module that needs what this processor may lack says so with ENODEV, and another does its work.
fn is_optional(path: &Path) -> bool {
    path.to_string_lossy().contains("-crc32_pclmul.")
        || path.to_string_lossy().contains("-crc32c_intel.")
}

fn parameters(path: &Path) -> &'static CStr {
    if path.to_string_lossy().ends_with("-dummy.ko") {
        c"numdummies=0"
    } else {
        c""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dummy_makes_no_device_of_its_own() {
        assert_eq!(
            parameters(Path::new("/modules/rdma/03-dummy.ko")),
            c"numdummies=0"
        );
        assert_eq!(parameters(Path::new("/modules/rdma/03-veth.ko")), c"");
    }

    #[test]
    fn an_absent_folder_holds_nothing() {
        assert_eq!(load_folder("/nonexistent"), Ok(()));
        assert!(!folder_has("/nonexistent", "siw"));
    }
}
