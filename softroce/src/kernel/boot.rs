//! The two files that QEMU boots, made from a kernel once and kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Kernel, image,
    modules::{Module, STEPS, Tree},
};
use crate::{
    Error,
    cache::{Cache, Key},
    cpio::Archive,
    elf::Elf,
    progress::Progress,
};

/// The guest's first program, compiled by `build.rs` from `init/main.rs`.
const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// Changes with the layout of the archive, so that old ones in the cache are not used.
const LAYOUT: u32 = 1;

/// Modules beyond the standard ones.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Extra {
    /// Names of modules of the kernel.
    pub(crate) names: Vec<String>,
    /// Files.
    pub(crate) files: Vec<PathBuf>,
}

/// What QEMU is given.
#[derive(Debug, Clone)]
pub(crate) struct BootFiles {
    /// The kernel: uncompressed if it can be entered directly, else the distribution's own file.
    pub(crate) kernel: PathBuf,
    /// The first file system.
    pub(crate) initrd: PathBuf,
}

impl BootFiles {
    /// Takes both from the cache, or makes them.
    pub(crate) fn prepare(
        kernel: &Kernel,
        extra: &Extra,
        cache: &Cache,
        progress: &mut Progress,
    ) -> Result<Self, Error> {
        Ok(Self {
            kernel: direct_kernel(kernel, cache, progress)?,
            initrd: initrd(kernel, extra, cache)?,
        })
    }
}

fn direct_kernel(
    kernel: &Kernel,
    cache: &Cache,
    progress: &mut Progress,
) -> Result<PathBuf, Error> {
    let key = Key::default().with_file(&kernel.image).text();
    // Empty, and there if the kernel cannot be entered directly: it need not be unpacked again to find that out.
    let (direct, mark) = (format!("vmlinux-{key}"), format!("bzimage-{key}"));
    if cache.path(&mark).exists() {
        return Ok(kernel.image.clone());
    }
    if cache.path(&direct).is_file() {
        return Ok(cache.path(&direct));
    }
    progress.step(format!("preparing Linux {}", kernel.version));
    let content =
        fs::read(&kernel.image).map_err(|source| Error::io("read", &kernel.image, source))?;
    match image::direct(&content) {
        Some(content) => cache.file(&direct, || Ok(content)),
        None => cache.write(&mark, b"").map(|()| kernel.image.clone()),
    }
}

fn initrd(kernel: &Kernel, extra: &Extra, cache: &Cache) -> Result<PathBuf, Error> {
    let libraries = libraries(INIT)?;
    let mut key = Key::default()
        .with((LAYOUT, INIT, STEPS, &libraries, extra))
        .with_file(&kernel.modules)
        .with_file(&kernel.image);
    for file in &extra.files {
        key = key.with_file(file);
    }
    cache.file(&format!("initrd-{}", key.text()), || {
        let tree = Tree::read(&kernel.modules)
            .map_err(|source| Error::io("read", &kernel.modules, source))?;
        Ok(archive(
            &tree.resolve(&extra.names, &extra.files)?,
            &libraries,
        ))
    })
}

/// Puts the first file system together.
fn archive(steps: &[(&str, Vec<Module>)], libraries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "modules"] {
        archive.folder(folder);
    }
    // A program's standard streams, before the kernel's own device nodes are mounted.
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("init", INIT);
    for (step, modules) in steps {
        archive.folder(&format!("modules/{step}"));
        for (index, module) in modules.iter().enumerate() {
            archive.file(
                &format!("modules/{step}/{index:03}-{}.ko", module.name),
                &module.content,
            );
        }
    }
    let mut folders: Vec<String> = Vec::new();
    for (path, content) in libraries {
        let path = path.trim_start_matches('/');
        for folder in Path::new(path)
            .ancestors()
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let folder = folder.to_string_lossy().into_owned();
            if !folder.is_empty() && !folders.contains(&folder) {
                archive.folder(&folder);
                folders.push(folder);
            }
        }
        archive.file(path, content);
    }
    archive.finish()
}

/// What a dynamic program needs beside itself: its loader, and its libraries from where loaders look first. Nothing for a static one.
fn libraries(program: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let Some((elf, loader)) = Elf::parse(program).and_then(|elf| Some((elf, elf.interpreter()?)))
    else {
        return Ok(Vec::new());
    };
    let read = |path: &Path| fs::read(path).map_err(|source| Error::io("read", path, source));
    let mut found = vec![(loader.to_owned(), read(Path::new(loader))?)];
    let mut wanted: Vec<String> = elf.needed().into_iter().map(str::to_owned).collect();
    let folders = library_folders(Path::new(loader));
    while let Some(name) = wanted.pop() {
        let known = |(path, _): &(String, Vec<u8>)| {
            Path::new(path)
                .file_name()
                .is_some_and(|file| file == name.as_str())
        };
        if found.iter().any(known) {
            continue;
        }
        let path = folders
            .iter()
            .map(|folder| folder.join(&name))
            .find(|path| path.is_file());
        let path = path.ok_or_else(|| {
            Error::Guest(format!(
                "the guest's init needs the library {name}, which is in none of {folders:?}"
            ))
        })?;
        let content = read(&path)?;
        wanted.extend(
            Elf::parse(&content)
                .map(|elf| {
                    elf.needed()
                        .into_iter()
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                })
                .unwrap_or_default(),
        );
        // In the guest it lies where it lies here: this loader looks there without a cache.
        found.push((path.to_string_lossy().into_owned(), content));
    }
    Ok(found)
}

fn library_folders(loader: &Path) -> Vec<PathBuf> {
    let beside = fs::canonicalize(loader)
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned));
    let usual = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ];
    beside.into_iter().chain(usual.map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_gets_its_loader_and_all_libraries() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let libraries = libraries(&program).unwrap();
        if Elf::parse(&program).unwrap().interpreter().is_some() {
            assert!(libraries[0].0.contains("ld-"), "{}", libraries[0].0);
            assert!(libraries.iter().any(|(path, _)| path.contains("/libc.")));
        }
    }

    #[test]
    fn the_archive_holds_the_init_and_the_modules_in_order() {
        let module = |name: &str| Module {
            name: name.into(),
            content: b"content".to_vec(),
        };
        let archive = archive(
            &[("port", vec![module("b"), module("a")])],
            &[("/lib64/ld.so".into(), b"x".to_vec())],
        );
        let text = String::from_utf8_lossy(&archive);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}"));
        assert!(at("modules/port/000-b.ko") < at("modules/port/001-a.ko"));
        assert!(at("lib64\0") < at("lib64/ld.so\0"));
        assert!(
            text.contains("dev/console") && text.contains("\0init\0") || text.contains("init\0")
        );
    }
}
