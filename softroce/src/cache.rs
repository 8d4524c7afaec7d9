//! The folder where kernels and what is made from them are kept.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use rustix::fs::{Access, access};

use crate::Error;

/// How many files of one kind are kept.
const KEPT: usize = 8;

/// How the names of files begin that are being written.
const NEW: &str = ".new-";

/// After this time, whoever was writing a file is not any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder that is made when something is put in.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The given folder, or the usual one.
    pub(crate) fn new(root: Option<&Path>) -> Result<Self, Error> {
        let root = match root {
            Some(root) => root.to_owned(),
            None => default_root(
                |key| env::var_os(key).map(PathBuf::from),
                env::current_exe().ok().as_deref(),
            )
            .ok_or_else(|| {
                Error::BadSetting(
                    "no folder to keep kernels in: set HOME, or name one with --cache-dir".into(),
                )
            })?,
        };
        Ok(Self {
            root: std::path::absolute(&root).map_err(|source| Error::io("use", root, source))?,
        })
    }

    /// The path of an entry, whether it is there or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The folder itself, made if it is not there.
    pub(crate) fn folder(&self) -> Result<&Path, Error> {
        let made = fs::create_dir_all(&self.root);
        made.map_err(|source| Error::io("make", &self.root, source))?;
        Ok(&self.root)
    }

    /// Returns an entry, made now if it is not there. Nobody ever sees a half-written one.
    pub(crate) fn file(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<PathBuf, Error> {
        let path = self.path(name);
        if !path.is_file() {
            self.write(name, &make()?)?;
        }
        Ok(path)
    }

    /// Writes an entry in one step.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let failed = |source| Error::io("write", &path, source);
        let readable = fs::Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new()
            .prefix(NEW)
            .permissions(readable)
            .tempfile_in(self.folder()?)
            .map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        self.prune(name);
        Ok(())
    }

    /// Removes all but the newest entries of the same kind (the name up to its first dash), and what processes that were
    /// killed have left.
    fn prune(&self, name: &str) {
        let kind = name.split_once('-').map_or(name, |(kind, _)| kind);
        let mut same = Vec::new();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let changed = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok();
            if name
                .strip_prefix(kind)
                .is_some_and(|rest| rest.starts_with('-'))
            {
                same.push((changed, entry.path()));
            } else if name.starts_with(NEW)
                && changed
                    .and_then(|time| time.elapsed().ok())
                    .is_some_and(|age| age > ABANDONED)
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        same.sort();
        for (_, path) in same.iter().rev().skip(KEPT) {
            let _ = fs::remove_file(path);
        }
    }
}

/// `$CARGO_TARGET_DIR/softroce`, the target folder that this program was built into, or the user's cache: the first that this user may write
/// to (the program may have been built by another).
fn default_root(
    variable: impl Fn(&str) -> Option<PathBuf>,
    program: Option<&Path>,
) -> Option<PathBuf> {
    let set = |key: &str| variable(key).filter(|value| !value.as_os_str().is_empty());
    let built_into = program.and_then(|program| {
        program
            .ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").is_file())
    });
    let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let folders = [
        set("CARGO_TARGET_DIR"),
        built_into.map(Path::to_owned),
        user,
    ];
    let folders: Vec<PathBuf> = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join("softroce"))
        .collect();
    folders
        .iter()
        .find(|folder| is_writable(folder))
        .or(folders.last())
        .cloned()
}

/// Tells whether a folder may be written to, or made.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|folder| folder.is_dir() && access(folder, Access::WRITE_OK).is_ok())
}

/// A short name for a combination of values.
#[derive(Debug, Default)]
pub(crate) struct Key(DefaultHasher);

impl Key {
    /// Adds a value.
    pub(crate) fn with(mut self, value: impl Hash) -> Self {
        value.hash(&mut self.0);
        self
    }

    /// Adds a file's identity: path, size and time of change.
    pub(crate) fn with_file(self, path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        let changed = metadata
            .as_ref()
            .and_then(|metadata| metadata.modified().ok())
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        self.with(path)
            .with(metadata.map(|metadata| metadata.len()))
            .with(changed)
    }

    /// Writes it out.
    pub(crate) fn text(&self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_folder_comes_before_the_users_cache_if_it_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let from = |variables: &[(&str, PathBuf)], program: Option<&Path>| {
            default_root(
                |key| {
                    variables
                        .iter()
                        .find(|(name, _)| *name == key)
                        .map(|(_, value)| value.clone())
                },
                program,
            )
        };
        let target = ("CARGO_TARGET_DIR", at("t"));
        let (home, cache) = (("HOME", at("h")), ("XDG_CACHE_HOME", at("x")));
        assert_eq!(from(&[target, home.clone()], None), Some(at("t/softroce")));
        assert_eq!(
            from(
                &[("CARGO_TARGET_DIR", "".into()), cache, home.clone()],
                None
            ),
            Some(at("x/softroce"))
        );
        assert_eq!(
            from(
                &[("CARGO_TARGET_DIR", "/etc/passwd/t".into()), home.clone()],
                None
            ),
            Some(at("h/.cache/softroce"))
        );
        assert_eq!(
            from(&[("HOME", "/etc/passwd/h".into())], None),
            Some("/etc/passwd/h/.cache/softroce".into())
        );
        assert_eq!(from(&[], None), None);
        fs::create_dir(at("built")).unwrap();
        fs::write(at("built/CACHEDIR.TAG"), "").unwrap();
        assert_eq!(
            from(&[home], Some(&at("built/debug/softroce"))),
            Some(at("built/softroce"))
        );
    }

    #[test]
    fn an_entry_is_made_once_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path())).unwrap();
        assert!(
            cache
                .file("a-1", || Err(Error::Guest("no".into())))
                .is_err()
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let path = cache.file("a-1", || Ok(b"x".to_vec())).unwrap();
        assert_eq!(cache.file("a-1", || unreachable!()).unwrap(), path);
        assert_eq!(fs::read(path).unwrap(), b"x");
    }

    #[test]
    fn old_entries_of_one_kind_go() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path())).unwrap();
        cache.write("other-1", b"").unwrap();
        let left = fs::File::create(folder.path().join(".new-left")).unwrap();
        left.set_modified(std::time::SystemTime::now() - 2 * ABANDONED)
            .unwrap();
        fs::write(folder.path().join(".new-busy"), "").unwrap();
        for index in 0..KEPT + 3 {
            cache
                .file(&format!("a-{index}"), || Ok(Vec::new()))
                .unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), KEPT + 2);
        assert!(cache.path("other-1").exists() && cache.path(".new-busy").exists());
    }

    #[test]
    fn keys_differ_with_their_values() {
        assert_eq!(Key::default().with(1).text(), Key::default().with(1).text());
        assert_ne!(Key::default().with(1).text(), Key::default().with(2).text());
        assert_eq!(Key::default().text().len(), 16);
    }
}
