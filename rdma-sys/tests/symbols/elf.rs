//! What an ELF file defines and needs, with the version of each symbol.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader as _, Sym as _, VersionTable};

/// A dynamic symbol of a file.
pub(crate) struct Symbol {
    /// The version it is defined with or needs, such as `RDMACM_1.3`.
    pub(crate) version: Option<String>,
    pub(crate) is_defined: bool,
    /// Whether it is the one that a plain reference gets, where there are several.
    pub(crate) is_default: bool,
}

/// The dynamic symbols of a file. Of several with one name, the default one.
pub(crate) fn symbols(path: &Path) -> BTreeMap<String, Symbol> {
    let data = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let endian = file.endian();
    let header: &FileHeader64<Endianness> = file.elf_header();
    let sections = header.sections(endian, &*data).expect("sections");
    let dynamic = sections
        .symbols(endian, &*data, object::elf::SHT_DYNSYM)
        .expect("dynamic symbols");
    let versions: VersionTable<'_, FileHeader64<Endianness>> = sections
        .versions(endian, &*data)
        .expect("versions")
        .unwrap_or_default();
    let mut found = BTreeMap::new();
    for (index, symbol) in dynamic.enumerate() {
        let name = symbol.name(endian, dynamic.strings()).expect("a name");
        let index = versions.version_index(endian, index);
        let version = versions.version(index).ok().flatten();
        let symbol = Symbol {
            version: version.map(|version| String::from_utf8_lossy(version.name()).into_owned()),
            is_defined: !symbol.is_undefined(endian),
            is_default: !index.is_hidden(),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if symbol.is_default || !found.contains_key(&name) {
            found.insert(name, symbol);
        }
    }
    found
}

/// Where a library that this program has loaded lies.
pub(crate) fn loaded(library: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| {
            Path::new(path)
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(library))
        })
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{library} is not loaded"))
}

/// The file of this program: the one that this function is mapped from. `current_exe` is the dynamic linker when a
/// program is run through it, as tests against another version of the libraries are.
pub(crate) fn this_program() -> PathBuf {
    let address = (this_program as *const ()).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let holds = |line: &&str| {
        let range = line
            .split_whitespace()
            .next()
            .and_then(|range| range.split_once('-'));
        let Some((start, end)) = range else {
            return false;
        };
        let bound = |number| usize::from_str_radix(number, 16).expect("an address");
        (bound(start)..bound(end)).contains(&address)
    };
    let line = maps.lines().find(holds).expect("this function is mapped");
    PathBuf::from(line.split_whitespace().nth(5).expect("from a file"))
}
