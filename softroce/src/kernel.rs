//! The kernel that the guest runs: which one, and what is made from it.

mod boot;
mod download;
mod image;
mod modules;
pub(crate) mod siw;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, cache::Cache, progress::Progress};

pub(crate) use boot::{BootFiles, Extra};

/// A kernel with its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Its version, such as `6.1.0-50-amd64`.
    pub(crate) version: String,
    /// The file to boot.
    pub(crate) image: PathBuf,
    /// The folder `.../lib/modules/VERSION`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// Finds a kernel by what the user says: a file, or a version that is installed under `roots`.
    pub(crate) fn named(name: &Path, roots: &[PathBuf]) -> Result<Self, Error> {
        let unknown = |why: String| Error::UnknownKernel {
            name: name.display().to_string(),
            why,
        };
        if !name.is_file() {
            let version = name.to_string_lossy();
            let found = roots.iter().find_map(|root| {
                installed(root)
                    .into_iter()
                    .find(|kernel| kernel.version == version)
            });
            return found.ok_or_else(|| {
                unknown(match known(roots).as_slice() {
                    [] => {
                        "it is neither a file nor the version of an installed kernel with rdma_rxe"
                            .into()
                    }
                    versions => format!(
                        "it is not a file, and the kernels with rdma_rxe here are {}",
                        versions.join(", ")
                    ),
                })
            });
        }
        let content = fs::read(name).map_err(|source| Error::io("read", name, source))?;
        if !image::is_kernel(&content) {
            return Err(unknown(
                "the file is not a kernel for this processor".into(),
            ));
        }
        let path = fs::canonicalize(name).map_err(|source| Error::io("read", name, source))?;
        let version = image::version(&content)
            .ok_or_else(|| unknown("the file does not state its version".into()))?;
        let modules = beside(&path, &version)
            .into_iter()
            .find(|folder| folder.is_dir());
        let modules = modules.ok_or_else(|| {
            unknown(format!(
                "its modules are neither in /lib/modules/{version} nor beside it"
            ))
        })?;
        Ok(Self {
            version,
            image: path,
            modules,
        })
    }

    /// Where kernels are looked for: the machine, then what was downloaded.
    pub(crate) fn roots(cache: &Cache) -> [PathBuf; 2] {
        ["/".into(), cache.path("kernel")]
    }

    /// Finds the newest usable kernel that is there, or downloads the distribution's.
    pub(crate) fn find_or_download(cache: &Cache, progress: &mut Progress) -> Result<Self, Error> {
        Self::newest(&Self::roots(cache)).map_or_else(|| download::download(cache, progress), Ok)
    }

    /// Finds the newest usable kernel that is installed under one of `roots`; earlier roots come first.
    pub(crate) fn newest(roots: &[PathBuf]) -> Option<Self> {
        roots
            .iter()
            .find_map(|root| installed(root).into_iter().next())
    }
}

fn known(roots: &[PathBuf]) -> Vec<String> {
    roots
        .iter()
        .flat_map(|root| installed(root))
        .map(|kernel| kernel.version)
        .collect()
}

/// Where the modules of a kernel file may be.
fn beside(image: &Path, version: &str) -> Vec<PathBuf> {
    let parent = image.parent().unwrap_or(Path::new("/"));
    let above = parent.parent().unwrap_or(Path::new("/"));
    vec![
        parent.to_owned(),
        above.join("lib/modules").join(version),
        above.join("usr/lib/modules").join(version),
        Path::new("/lib/modules").join(version),
    ]
    .into_iter()
    .filter(|folder| folder.file_name().is_some_and(|name| name == version))
    .collect()
}

/// The kernels under a root (`/`, or a folder with an unpacked package) that have the modules and can be read, newest first.
pub(crate) fn installed(root: &Path) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = ["lib/modules", "usr/lib/modules"]
        .iter()
        .flat_map(|folder| {
            fs::read_dir(root.join(folder))
                .into_iter()
                .flatten()
                .flatten()
        })
        .filter_map(|entry| usable(root, &entry.path()))
        .collect();
    kernels.sort_by_key(|kernel| std::cmp::Reverse(version_order(&kernel.version)));
    kernels.dedup_by(|a, b| a.version == b.version);
    kernels
}

fn usable(root: &Path, modules: &Path) -> Option<Kernel> {
    let version = modules.file_name()?.to_str()?.to_owned();
    let images = [
        root.join("boot").join(format!("vmlinuz-{version}")),
        modules.join("vmlinuz"),
        root.join("boot/vmlinuz-lts"),
        root.join("boot/vmlinuz-virt"),
    ];
    let image = images.into_iter().find(|image| {
        let named = image.to_string_lossy().ends_with(&version) || image.starts_with(modules);
        fs::File::open(image).is_ok()
            && (named
                || fs::read(image)
                    .ok()
                    .and_then(|image| image::version(&image))
                    .as_ref()
                    == Some(&version))
    })?;
    has_rxe(modules).ok()?.then_some(Kernel {
        version,
        image,
        modules: modules.to_owned(),
    })
}

/// Looks where kernels keep the module before looking everywhere.
fn has_rxe(modules: &Path) -> io::Result<bool> {
    let usual = modules.join("kernel/drivers/infiniband/sw/rxe");
    let here = |folder: &Path| -> io::Result<bool> {
        Ok(fs::read_dir(folder)?.flatten().any(|entry| {
            modules::module_name(&entry.path()).as_deref() == Some(modules::ESSENTIAL)
        }))
    };
    if here(&usual).unwrap_or(false) {
        Ok(true)
    } else {
        Ok(modules::Tree::read(modules)?.has(modules::ESSENTIAL))
    }
}

/// Splits a version so that numbers compare as numbers.
fn version_order(version: &str) -> Vec<(u64, String)> {
    let parts = version.split(['.', '-', '_', '+', '~']);
    parts
        .map(|part| {
            (
                part.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>()
                    .parse()
                    .unwrap_or(0),
                part.to_owned(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, version: &str, with_rxe: bool) {
        let modules = root
            .join("lib/modules")
            .join(version)
            .join("kernel/drivers/infiniband/sw/rxe");
        fs::create_dir_all(&modules).unwrap();
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::write(root.join("boot").join(format!("vmlinuz-{version}")), "").unwrap();
        if with_rxe {
            fs::write(modules.join("rdma_rxe.ko.zst"), "").unwrap();
        }
    }

    #[test]
    fn the_newest_kernel_with_the_module_is_taken() {
        let root = tempfile::tempdir().unwrap();
        for (version, rxe) in [
            ("6.1.0-9-amd64", true),
            ("6.1.0-50-amd64", true),
            ("6.12.1-cloud", false),
        ] {
            install(root.path(), version, rxe);
        }
        let roots = [root.path().to_owned()];
        assert_eq!(Kernel::newest(&roots).unwrap().version, "6.1.0-50-amd64");
        assert_eq!(
            Kernel::named(Path::new("6.1.0-9-amd64"), &roots)
                .unwrap()
                .version,
            "6.1.0-9-amd64"
        );
        assert_eq!(Kernel::newest(&[root.path().join("nothing")]), None);
    }

    #[test]
    fn a_kernel_whose_image_is_missing_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "6.1.0-50-amd64", true);
        fs::remove_file(root.path().join("boot/vmlinuz-6.1.0-50-amd64")).unwrap();
        assert_eq!(Kernel::newest(&[root.path().to_owned()]), None);
    }

    #[test]
    fn an_unknown_kernel_is_named_with_those_that_are_there() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "6.1.0-50-amd64", true);
        let error = Kernel::named(Path::new("5.4-none"), &[root.path().to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`5.4-none`") && error.contains("6.1.0-50-amd64"),
            "{error}"
        );
        let text = root.path().join("text");
        fs::write(&text, "hello").unwrap();
        let error = Kernel::named(&text, &[]).unwrap_err().to_string();
        assert!(error.contains("not a kernel"), "{error}");
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_order("6.12.0") > version_order("6.9.8"));
        assert!(version_order("6.1.0-50-amd64") > version_order("6.1.0-9-amd64"));
    }
}
