//! The folder where kernels and what is made from them are kept.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::Error;

/// How many files of one kind are kept.
const KEPT: usize = 8;

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
            self.prune(name);
        }
        Ok(path)
    }

    /// Writes an entry in one step.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let failed = |source| Error::io("write", &path, source);
        let readable = fs::Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(readable)
            .tempfile_in(self.folder()?)
            .map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.persist(&path)
            .map_err(|error| failed(error.error))
            .map(drop)
    }

    /// Removes all but the newest entries of the same kind (the name up to its first dash).
    fn prune(&self, name: &str) {
        let kind = name.split_once('-').map_or(name, |(kind, _)| kind);
        let same = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str()?.strip_prefix(kind))
                .is_some_and(|rest| rest.starts_with('-'))
        };
        let entries = fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let mut entries: Vec<_> = entries
            .filter(same)
            .map(|path| {
                (
                    fs::metadata(&path)
                        .and_then(|metadata| metadata.modified())
                        .ok(),
                    path,
                )
            })
            .collect();
        entries.sort();
        for (_, path) in entries.iter().rev().skip(KEPT) {
            let _ = fs::remove_file(path);
        }
    }
}

/// `$CARGO_TARGET_DIR/softroce`, the target folder that this program was built into, or the user's cache.
fn default_root(
    variable: impl Fn(&str) -> Option<PathBuf>,
    program: Option<&Path>,
) -> Option<PathBuf> {
    let set = |key: &str| variable(key).filter(|value| !value.as_os_str().is_empty());
    let built_into = || {
        program?
            .ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").is_file())
            .map(Path::to_owned)
    };
    let user = || set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    set("CARGO_TARGET_DIR")
        .or_else(built_into)
        .or_else(user)
        .map(|folder| folder.join("softroce"))
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
    fn the_build_folder_comes_before_the_users_cache() {
        let from = |variables: &'static [(&str, &str)]| {
            default_root(
                move |key| {
                    variables
                        .iter()
                        .find(|(name, _)| *name == key)
                        .map(|(_, value)| value.into())
                },
                None,
            )
        };
        assert_eq!(
            from(&[("CARGO_TARGET_DIR", "/t"), ("HOME", "/h")]),
            Some("/t/softroce".into())
        );
        assert_eq!(
            from(&[
                ("CARGO_TARGET_DIR", ""),
                ("XDG_CACHE_HOME", "/x"),
                ("HOME", "/h")
            ]),
            Some("/x/softroce".into())
        );
        assert_eq!(from(&[("HOME", "/h")]), Some("/h/.cache/softroce".into()));
        assert_eq!(from(&[]), None);
        let target = tempfile::tempdir().unwrap();
        fs::write(target.path().join("CACHEDIR.TAG"), "").unwrap();
        let program = target.path().join("debug/softroce");
        assert_eq!(
            default_root(|_| None, Some(&program)),
            Some(target.path().join("softroce"))
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
        for index in 0..KEPT + 3 {
            cache
                .file(&format!("a-{index}"), || Ok(Vec::new()))
                .unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), KEPT + 1);
        assert!(cache.path("other-1").exists());
    }

    #[test]
    fn keys_differ_with_their_values() {
        assert_eq!(Key::default().with(1).text(), Key::default().with(1).text());
        assert_ne!(Key::default().with(1).text(), Key::default().with(2).text());
        assert_eq!(Key::default().text().len(), 16);
    }
}
