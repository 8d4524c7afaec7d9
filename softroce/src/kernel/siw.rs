//! The soft-iWARP module, `siw`: the kernel's own, or one built for it.
//!
//! Debian's kernels come without it, but their source and what modules are built with are packages. They are unpacked, not
//! installed, and gone again afterwards; only the module is kept.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use super::{
    Extra, Kernel,
    download::{self, Work},
    modules::{self, Tree},
};
use crate::{
    Error,
    cache::{Cache, Key},
    packages::{self, Consent, Manager, Need, find_program},
    progress::Progress,
};

/// The module's name.
const SIW: &str = "siw";

/// Where it is in the kernel's source.
const SOURCE: &str = "drivers/infiniband/sw/siw";

/// Adds the module to those that the guest loads; builds it first where the kernel has none, once for each kernel.
pub(crate) fn add(
    extra: &mut Extra,
    kernel: &Kernel,
    cache: &Cache,
    consent: Consent,
    progress: &mut Progress,
) -> Result<(), Error> {
    let tree =
        Tree::read(&kernel.modules).map_err(|source| Error::io("read", &kernel.modules, source))?;
    if tree.has(SIW) {
        extra.names.push(SIW.to_owned());
    } else {
        extra
            .files
            .push(built(kernel, &tree, cache, consent, progress)?);
    }
    Ok(())
}

fn built(
    kernel: &Kernel,
    tree: &Tree,
    cache: &Cache,
    consent: Consent,
    progress: &mut Progress,
) -> Result<PathBuf, Error> {
    // The guest's init knows the module by the name of its file, so the key is the folder's.
    let key = Key::default().with_file(&kernel.image).text();
    let folder = cache.path(&format!("{SIW}-{}-{key}", kernel.version));
    let module = folder.join("siw.ko");
    if module.is_file() {
        return Ok(module);
    }
    let unable = |why: String| Error::NoSiw {
        version: kernel.version.clone(),
        why,
    };
    if Manager::detect() != Some(Manager::Apt) {
        let why = "that takes the packages of Debian or Ubuntu; give one that was built elsewhere with --module siw.ko";
        return Err(unable(why.into()));
    }
    let release = Release::parse(&kernel.version)
        .ok_or_else(|| unable("its version does not tell which package has the source".into()))?;
    packages::ensure(&[Need::Cc, Need::Make, Need::Xz], consent)?;
    let there = || module.is_file().then(|| module.clone());
    let make = |work: &mut Work<'_>| {
        download::apt::unpack_part_of_source(work, &release, SOURCE)?;
        work.step(format!("building soft-iWARP for Linux {}", kernel.version));
        let made = make(work, &release)?;
        let content = fs::read(&made).map_err(|source| Error::io("read", &made, source))?;
        let (is_for, wanted) = (modules::fact(&content, "vermagic"), tree.vermagic());
        if wanted.is_some() && is_for != wanted {
            return Err(unable(format!(
                "what was built is for `{}`, and the kernel takes `{}`",
                is_for.unwrap_or_default(),
                wanted.unwrap_or_default(),
            )));
        }
        let ready = work.root.join("ready");
        let failed = |source| Error::io("make", &folder, source);
        fs::create_dir(&ready).map_err(failed)?;
        fs::rename(&made, ready.join("siw.ko")).map_err(failed)?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&ready, &folder).map_err(failed)?;
        Ok(module.clone())
    };
    download::in_turn(cache, progress, there, make).map_err(|error| match error {
        Error::Tool { command, reason } => unable(format!("`{command}` failed: {reason}")),
        other => other,
    })
}

/// The names that Debian gives to what belongs to a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// The kernel's own version: `6.1.0-57-amd64`.
    version: String,
    /// Its first two numbers: `6.1`.
    series: String,
}

impl Release {
    fn parse(version: &str) -> Option<Self> {
        let mut numbers = version.split('.');
        let (major, minor) = (numbers.next()?, numbers.next()?);
        let number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (number(major) && number(minor)).then(|| Self {
            version: version.to_owned(),
            series: format!("{major}.{minor}"),
        })
    }

    /// The kernel's first two numbers.
    pub(super) fn series(&self) -> &str {
        &self.series
    }

    /// The package of what modules for exactly this kernel are built with.
    pub(super) fn headers(&self) -> String {
        format!("linux-headers-{}", self.version)
    }

    /// The package of the source of this series.
    pub(super) fn source(&self) -> String {
        format!("linux-source-{}", self.series)
    }
}

/// Builds the module and returns its file.
fn make(work: &Work<'_>, release: &Release) -> Result<PathBuf, Error> {
    let sources = work.root.join("usr/src");
    let headers = sources.join(release.headers());
    relocate(&headers.join("Makefile"), &sources)?;
    let source = work.root.join(SOURCE);
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(&headers)
        .arg(format!("M={}", source.display()))
        .arg(format!("-j{jobs}"))
        // Without what debuggers want it is a twentieth of the size.
        .args(["-s", "CONFIG_RDMA_SIW=m", "KCFLAGS=-g0", "modules"])
        .env_remove("MAKEFLAGS")
        .env("LC_ALL", "C");
    if let Some(compiler) = other_compiler(&headers) {
        make.arg(format!("CC={compiler}"));
    }
    work.run(&mut make)?;
    Ok(source.join("siw.ko"))
}

/// The headers' own makefile names the common one by where it would be installed.
fn relocate(makefile: &Path, sources: &Path) -> Result<(), Error> {
    let text =
        fs::read_to_string(makefile).map_err(|source| Error::io("read", makefile, source))?;
    let here = format!("include {}/", sources.display());
    let moved = text.replace("include /usr/src/", &here);
    fs::write(makefile, moved).map_err(|source| Error::io("write", makefile, source))
}

/// The machine's compiler, where it lacks the one that the kernel was built with (`gcc-12`).
fn other_compiler(headers: &Path) -> Option<&'static str> {
    let variables = fs::read_to_string(headers.join(".kernelvariables")).unwrap_or_default();
    let named = variables
        .lines()
        .find_map(|line| line.strip_prefix("CC = "))
        .and_then(|value| value.split([' ', ')']).next_back());
    match named {
        Some(name) if find_program(name).is_some() => None,
        _ => Some("cc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_after_the_kernel() {
        let release = Release::parse("6.1.0-57-amd64").unwrap();
        assert_eq!(release.headers(), "linux-headers-6.1.0-57-amd64");
        assert_eq!(release.source(), "linux-source-6.1");
        let release = Release::parse("6.12.57+deb13-amd64").unwrap();
        assert_eq!(release.source(), "linux-source-6.12");
        assert_eq!(Release::parse("mainline"), None);
        assert_eq!(Release::parse("6.rc-1"), None);
    }

    #[test]
    fn the_makefile_is_moved_to_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let makefile = folder.path().join("Makefile");
        let line = |sources: &str| format!("include {sources}/linux-headers-6.1-common/Makefile\n");
        fs::write(&makefile, line("/usr/src")).unwrap();
        relocate(&makefile, Path::new("/c/usr/src")).unwrap();
        assert_eq!(fs::read_to_string(makefile).unwrap(), line("/c/usr/src"));
    }

    #[test]
    fn another_compiler_is_named_only_where_the_kernels_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let variables = folder.path().join(".kernelvariables");
        let say = |name: &str| {
            let text = format!("override ARCH = x86\nCC = $(if $(X)) $(CROSS_COMPILE){name}\n");
            fs::write(&variables, text).unwrap();
            other_compiler(folder.path())
        };
        assert_eq!(say("sh"), None);
        assert_eq!(say("gcc-0-of-nobody"), Some("cc"));
    }

    #[test]
    fn a_kernel_that_has_the_module_needs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("6.8.0-generic");
        fs::create_dir_all(modules.join("kernel")).unwrap();
        fs::write(modules.join("kernel/siw.ko.zst"), "").unwrap();
        let kernel = Kernel {
            version: "6.8.0-generic".into(),
            image: "/nonexistent".into(),
            modules,
        };
        let cache = Cache::new(Some(folder.path())).unwrap();
        let mut extra = Extra::default();
        let mut progress = Progress::new(true);
        add(&mut extra, &kernel, &cache, Consent::Never, &mut progress).unwrap();
        assert_eq!(extra.names, ["siw"]);
        assert!(extra.files.is_empty());
    }
}
