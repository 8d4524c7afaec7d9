//! Which kernel modules the guest loads, in which order, and their unpacked content.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, elf::Elf, unpack::Format};

/// The modules behind each step of the guest's init, in the order of loading. A question mark marks those that not every kernel has (or has
/// built in without saying so).
pub(crate) const STEPS: [(&str, &[&str]); 4] = [
    ("port", &["virtio_pci", "virtio_console"]),
    ("root", &["9pnet_virtio", "9p", "overlay"]),
    // Without crc32_generic, rxe on kernels before 6.15 answers ENOENT when a link is added.
    (
        "rdma",
        &[
            "crc32_generic?",
            "crc32_pclmul?",
            "dummy",
            "ipv6?",
            "rdma_rxe",
            "rdma_ucm",
            "ib_uverbs",
        ],
    ),
    ("extra", &[]),
];

/// What the soft-iWARP module asks the kernel for by name, without a dependency that could be seen.
const FOR_EXTRA: [&str; 2] = ["crc32c_generic?", "crc32c_intel?"];

/// The module whose presence makes a kernel fit.
pub(crate) const ESSENTIAL: &str = "rdma_rxe";

/// A module to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its name, with underscores.
    pub(crate) name: String,
    /// Its content, unpacked and without a signature.
    pub(crate) content: Vec<u8>,
}

/// Where a kernel's modules are.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: HashMap<String, PathBuf>,
    builtin: HashSet<String>,
}

impl Tree {
    /// Reads the names in a folder such as `/lib/modules/6.1.0-50-amd64`.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if let Some(name) = module_name(&entry.path()) {
                    tree.files.insert(name, entry.path());
                }
            }
        }
        let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        tree.builtin = builtin
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(tree)
    }

    /// Tells whether the kernel has a module, built in or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.builtin.contains(name)
    }

    /// What the kernel's modules say that they were built for.
    pub(crate) fn vermagic(&self) -> Option<String> {
        let content = read(self.files.get(ESSENTIAL)?).ok()?;
        fact(&content, "vermagic")
    }

    /// Returns the modules of every step with all that they depend on, each module once, dependencies first.
    pub(crate) fn resolve(
        &self,
        names: &[String],
        files: &[PathBuf],
    ) -> Result<Vec<(&'static str, Vec<Module>)>, Error> {
        let mut loaded = HashSet::new();
        let mut steps = Vec::new();
        for (step, wanted) in STEPS {
            let mut modules = Vec::new();
            for name in wanted {
                self.add(name, &mut loaded, &mut modules)?;
            }
            if step == "extra" {
                self.add_extra(names, files, &mut loaded, &mut modules)?;
            }
            steps.push((step, modules));
        }
        Ok(steps)
    }

    fn add_extra(
        &self,
        names: &[String],
        files: &[PathBuf],
        loaded: &mut HashSet<String>,
        to: &mut Vec<Module>,
    ) -> Result<(), Error> {
        if !files.is_empty() || names.iter().any(|name| name == "siw") {
            FOR_EXTRA
                .iter()
                .try_for_each(|name| self.add(name, loaded, to))?;
        }
        for name in names {
            self.add(&name.replace('-', "_"), loaded, to)?;
        }
        for file in files {
            let name = module_name(file).ok_or_else(|| Error::BadModule {
                path: file.clone(),
                why: "its name does not end in .ko",
            })?;
            if loaded.insert(name.clone()) {
                self.add_file(name, file, loaded, to)?;
            }
        }
        Ok(())
    }

    fn add(
        &self,
        wanted: &str,
        loaded: &mut HashSet<String>,
        to: &mut Vec<Module>,
    ) -> Result<(), Error> {
        let (name, optional) = wanted
            .strip_suffix('?')
            .map_or((wanted, false), |name| (name, true));
        if self.builtin.contains(name) || !loaded.insert(name.to_owned()) {
            return Ok(());
        }
        match self.files.get(name) {
            Some(file) => self.add_file(name.to_owned(), file, loaded, to),
            None if optional => Ok(()),
            None => Err(Error::NoModule {
                name: name.to_owned(),
            }),
        }
    }

    fn add_file(
        &self,
        name: String,
        file: &Path,
        loaded: &mut HashSet<String>,
        to: &mut Vec<Module>,
    ) -> Result<(), Error> {
        let content = read(file).map_err(|source| Error::io("read", file, source))?;
        let depends = depends(&content).ok_or_else(|| Error::BadModule {
            path: file.to_owned(),
            why: "it is not a kernel module",
        })?;
        for dependency in &depends {
            self.add(dependency, loaded, to)?;
        }
        to.push(Module { name, content });
        Ok(())
    }
}

/// The name of a module in a file, with underscores.
pub(crate) fn module_name(path: &Path) -> Option<String> {
    let (name, ending) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(file)?;
    let bytes = match Format::of(&bytes) {
        Some(format) => format.unpack(&bytes)?,
        None => bytes,
    };
    Ok(without_signature(bytes))
}

/// Cuts a signature off: checking it takes the guest longer than anything else about the module under emulation, and the
/// host has read the file from a place it trusts.
fn without_signature(mut bytes: Vec<u8>) -> Vec<u8> {
    const MAGIC: &[u8] = b"~Module signature appended~\n";
    const INFO: usize = 12;
    let length = |bytes: &[u8]| -> Option<usize> {
        let info = bytes.strip_suffix(MAGIC)?;
        let size = u32::from_be_bytes(*info.last_chunk()?);
        info.len()
            .checked_sub(INFO)?
            .checked_sub(usize::try_from(size).ok()?)
    };
    if let Some(length) = length(&bytes) {
        bytes.truncate(length);
    }
    bytes
}

/// What a module says about itself in lines `KEY=VALUE`; `None` when it is no module.
fn facts<'a>(content: &'a [u8], key: &'a str) -> Option<impl Iterator<Item = &'a str>> {
    let info = Elf::parse(content)?.section(".modinfo")?;
    let lines = info
        .split(|byte| *byte == 0)
        .filter_map(|line| std::str::from_utf8(line).ok());
    Some(lines.filter_map(move |line| line.strip_prefix(key)?.strip_prefix('=')))
}

/// The first thing that a module says under `key`.
pub(crate) fn fact(content: &[u8], key: &str) -> Option<String> {
    Some(facts(content, key)?.next()?.trim().to_owned())
}

/// The names that a module says it depends on.
fn depends(content: &[u8]) -> Option<Vec<String>> {
    let names = facts(content, "depends")?.flat_map(|names| names.split(','));
    Some(
        names
            .filter(|name| !name.is_empty())
            .map(|name| name.replace('-', "_"))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object file with nothing but a `.modinfo` section.
    fn object(depends: &str) -> Vec<u8> {
        let info = format!("license=GPL\0depends={depends}\0");
        let names = b"\0.modinfo\0";
        let mut file = vec![0; 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28] = 0x40;
        file[0x3a] = 0x40;
        file[0x3c] = 2;
        let header = |name: u8, offset: usize, size: usize| {
            let mut header = [0; 0x40];
            header[0] = name;
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            header
        };
        file.extend(header(0, 0xc0, names.len()));
        file.extend(header(1, 0xc0 + names.len(), info.len()));
        file.extend_from_slice(names);
        file.extend_from_slice(info.as_bytes());
        file
    }

    fn tree(modules: &[(&str, &str)], builtin: &str) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("kernel/net")).unwrap();
        for (name, depends) in modules {
            fs::write(folder.path().join("kernel/net").join(name), object(depends)).unwrap();
        }
        fs::write(folder.path().join("modules.builtin"), builtin).unwrap();
        let tree = Tree::read(folder.path()).unwrap();
        (folder, tree)
    }

    const USUAL: [(&str, &str); 8] = [
        ("9pnet_virtio.ko", "9pnet,virtio"),
        ("9pnet.ko", ""),
        ("9p.ko", "9pnet"),
        ("overlay.ko", ""),
        ("dummy.ko", ""),
        ("rdma_rxe.ko", "ib_core"),
        ("ib-core.ko", ""),
        ("rdma_ucm.ko", "ib_core"),
    ];
    const BUILTIN: &str = "kernel/drivers/virtio/virtio_pci.ko\nkernel/v/virtio.ko\nkernel/v/virtio_console.ko\nkernel/i/ib_uverbs.ko\n";

    fn names(steps: &[(&str, Vec<Module>)], step: &str) -> Vec<String> {
        let (_, modules) = steps.iter().find(|(name, _)| *name == step).unwrap();
        modules.iter().map(|module| module.name.clone()).collect()
    }

    #[test]
    fn dependencies_come_first_and_once_and_builtin_ones_not_at_all() {
        let (_folder, tree) = tree(&USUAL, BUILTIN);
        let steps = tree.resolve(&[], &[]).unwrap();
        assert_eq!(names(&steps, "port"), [""; 0]);
        assert_eq!(
            names(&steps, "root"),
            ["9pnet", "9pnet_virtio", "9p", "overlay"]
        );
        assert_eq!(
            names(&steps, "rdma"),
            ["dummy", "ib_core", "rdma_rxe", "rdma_ucm"]
        );
        assert_eq!(names(&steps, "extra"), [""; 0]);
        assert!(tree.has("virtio") && tree.has("ib_core") && !tree.has("siw"));
    }

    #[test]
    fn extra_modules_bring_their_dependencies() {
        let (folder, tree) = tree(
            &[&USUAL[..], &[("iw_cm.ko", ""), ("sch_netem.ko", "")]].concat(),
            BUILTIN,
        );
        let siw = folder.path().join("siw.ko");
        fs::write(&siw, object("ib_core,iw_cm")).unwrap();
        let steps = tree.resolve(&["sch-netem".into()], &[siw]).unwrap();
        assert_eq!(names(&steps, "extra"), ["sch_netem", "iw_cm", "siw"]);
    }

    #[test]
    fn the_kernels_own_soft_iwarp_gets_what_it_asks_for_by_name() {
        let more = [("crc32c_generic.ko", ""), ("siw.ko", "ib_core")];
        let (_folder, tree) = tree(&[&USUAL[..], &more].concat(), BUILTIN);
        let steps = tree.resolve(&["siw".into()], &[]).unwrap();
        assert_eq!(names(&steps, "extra"), ["crc32c_generic", "siw"]);
    }

    #[test]
    fn a_module_tells_what_it_was_built_for() {
        let content = object("ib_core\0vermagic=6.1.0-57-amd64 SMP \0vermagic=x");
        let found = fact(&content, "vermagic");
        assert_eq!(found.as_deref(), Some("6.1.0-57-amd64 SMP"));
        assert_eq!(fact(&content, "verm"), None);
        assert_eq!(fact(b"text", "vermagic"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (folder, tree) = tree(&USUAL[..7], BUILTIN);
        assert!(
            tree.resolve(&[], &[])
                .unwrap_err()
                .to_string()
                .contains("rdma_ucm")
        );
        let text = folder.path().join("text.ko");
        fs::write(&text, "not a module").unwrap();
        let mut to = Vec::new();
        let error = tree
            .add_extra(&[], &[text], &mut HashSet::new(), &mut to)
            .unwrap_err();
        assert!(
            error.to_string().contains("text.ko")
                && error.to_string().contains("not a kernel module"),
            "{error}"
        );
    }

    #[test]
    fn names_are_read_from_packed_and_plain_files() {
        assert_eq!(
            module_name(Path::new("/x/crc32-pclmul.ko.xz")),
            Some("crc32_pclmul".into())
        );
        assert_eq!(module_name(Path::new("/x/9p.ko")), Some("9p".into()));
        assert_eq!(module_name(Path::new("/x/modules.order")), None);
        assert_eq!(module_name(Path::new("/x/a.ko.bak")), None);
    }

    #[test]
    fn a_signature_is_cut_off_and_damage_is_not_guessed_at() {
        let signed = [
            b"module".as_slice(),
            b"SIGNATURE",
            &[0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9],
            b"~Module signature appended~\n",
        ]
        .concat();
        assert_eq!(without_signature(signed), b"module");
        let wrong = [
            b"x".as_slice(),
            &[255; 12],
            b"~Module signature appended~\n",
        ]
        .concat();
        assert_eq!(without_signature(wrong.clone()), wrong);
        assert_eq!(without_signature(b"module".to_vec()), b"module");
    }
}
