//! The feature `buildtime-bindgen`: bindings from the headers of the machine.
//!
//! Those may be older than the committed `bindings.rs`. The rest of the crate, and what is built on it, counts on the
//! newest names, so what the machine's headers do not have yet is taken from the committed file: nothing in these
//! headers was ever renumbered or removed, and structures grow at an end (`README.md`, "Versions").

#[path = "../bindgen_settings.rs"]
mod settings;

use std::collections::{HashMap, HashSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{Fields, File, ForeignItem, ImplItem, Item, Type};

/// Where the headers are, instead of where pkg-config says.
const INCLUDE_DIR: &str = "RDMA_CORE_INCLUDE_DIR";

/// Writes `bindings.rs` into the folder for generated files.
pub(crate) fn generate(include_paths: &[PathBuf]) -> Result<(), String> {
    println!("cargo::rerun-if-changed=bindgen_settings.rs");
    println!("cargo::rerun-if-changed=src/bindings.rs");
    println!("cargo::rerun-if-env-changed={INCLUDE_DIR}");
    println!("cargo::rustc-cfg=from_machine");
    settings::find_libclang()?;
    let mut builder = settings::builder().header_contents(
        "wrapper.h",
        "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\n",
    );
    let named = env::var_os(INCLUDE_DIR).map(PathBuf::from);
    for folder in named
        .iter()
        .map(PathBuf::as_path)
        .chain(include_paths.iter().map(PathBuf::as_path))
    {
        builder = builder.clang_arg("-I").clang_arg(folder.to_string_lossy());
    }
    if let Some(folder) = compiler_headers() {
        builder = builder.clang_arg("-idirafter").clang_arg(folder);
    }
    let bindings = builder
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate()
        .map_err(|cause| format!("the headers of this machine cannot be read: {cause}"))?;
    let machine = parse(&bindings.to_string(), "what bindgen made")?;
    let path = Path::new("src/bindings.rs");
    let committed =
        std::fs::read_to_string(path).map_err(|cause| format!("{}: {cause}", path.display()))?;
    let committed = parse(&committed, "src/bindings.rs")?;
    let text = prettyplease::unparse(&complete(machine, committed));
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    std::fs::write(&out, text).map_err(|cause| format!("{}: {cause}", out.display()))
}

/// Where the C compiler has its own headers, such as `stddef.h`. Clang's may not be installed beside libclang.
fn compiler_headers() -> Option<String> {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .arg("-print-file-name=include")
        .output()
        .ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| folder.trim().to_owned())
}

fn parse(text: &str, what: &str) -> Result<File, String> {
    syn::parse_file(text).map_err(|cause| format!("{what} is not Rust: {cause}"))
}

/// The machine's items, then those of the committed file that it does not have.
///
/// Where both have a structure or union and the committed one has more fields, that one is taken: it has grown, and the
/// crate's rules for reading it (by distance, after a size check) are made for that.
fn complete(mut machine: File, committed: File) -> File {
    let machine_fields: HashMap<String, usize> = machine
        .items
        .iter()
        .filter_map(|item| Some((name(item)?, fields(item)?)))
        .collect();
    let mut names: HashSet<String> = machine.items.iter().filter_map(name).collect();
    for item in &committed.items {
        let (Some(name), Some(newer)) = (name(item), fields(item)) else {
            continue;
        };
        if machine_fields
            .get(&name)
            .is_some_and(|older| newer > *older)
        {
            machine.items.retain(|item| !is_or_implements(item, &name));
            names.remove(&name);
        }
    }
    let constants: HashSet<String> = machine.items.iter().flat_map(constants).collect();
    let functions: HashSet<String> = machine.items.iter().flat_map(functions).collect();
    for mut item in committed.items {
        let is_missing = match &mut item {
            Item::Impl(block) if block.trait_.is_some() => {
                !names.contains(&type_name(&block.self_ty))
            }
            Item::Impl(block) => {
                let own = type_name(&block.self_ty);
                block.items.retain(|item| match item {
                    ImplItem::Const(constant) => {
                        !constants.contains(&format!("{own}::{}", constant.ident))
                    }
                    _ => true,
                });
                !block.items.is_empty()
            }
            Item::ForeignMod(block) => {
                block.items.retain(|item| match item {
                    ForeignItem::Fn(function) => {
                        !functions.contains(&function.sig.ident.to_string())
                    }
                    _ => true,
                });
                !block.items.is_empty()
            }
            Item::Use(_) => false,
            other => name(other).is_some_and(|name| !names.contains(&name)),
        };
        if is_missing {
            machine.items.push(item);
        }
    }
    machine
}

/// Whether an item is a type, or implements a trait for it.
fn is_or_implements(item: &Item, ty: &str) -> bool {
    match item {
        Item::Impl(block) => block.trait_.is_some() && type_name(&block.self_ty) == ty,
        other => name(other).is_some_and(|name| name == ty),
    }
}

/// The name of an item that has one.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// How many fields a structure or union has.
fn fields(item: &Item) -> Option<usize> {
    match item {
        Item::Struct(item) => match &item.fields {
            Fields::Named(fields) => Some(fields.named.len()),
            _ => None,
        },
        Item::Union(item) => Some(item.fields.named.len()),
        _ => None,
    }
}

/// The constants of a newtype, as `type::name`.
fn constants(item: &Item) -> Vec<String> {
    let Item::Impl(block) = item else {
        return Vec::new();
    };
    let own = type_name(&block.self_ty);
    let constant = |item: &ImplItem| match item {
        ImplItem::Const(constant) => Some(format!("{own}::{}", constant.ident)),
        _ => None,
    };
    block.items.iter().filter_map(constant).collect()
}

/// The functions of a block of declarations.
fn functions(item: &Item) -> Vec<String> {
    let Item::ForeignMod(block) = item else {
        return Vec::new();
    };
    let function = |item: &ForeignItem| match item {
        ForeignItem::Fn(function) => Some(function.sig.ident.to_string()),
        _ => None,
    };
    block.items.iter().filter_map(function).collect()
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string())
            .unwrap_or_default(),
        _ => String::new(),
    }
}
