//! What this crate's source and the headers declare, read as text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A file of this package.
pub(crate) fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The functions that `bindings.rs` declares.
pub(crate) fn declared() -> BTreeSet<String> {
    let text = read("src/bindings.rs");
    let block = text
        .split_once("unsafe extern \"C\" {")
        .expect("a block of functions")
        .1;
    block
        .lines()
        .take_while(|line| *line != "}")
        .filter_map(|line| name_after(line, "    pub fn "))
        .collect()
}

/// The names in the list `PROBED` of the settings.
pub(crate) fn blocked_as_newer() -> BTreeSet<String> {
    let text = read("bindgen_settings.rs");
    let list = text
        .split_once("const PROBED: &[&str] = &[")
        .expect("the list")
        .1;
    let list = list.split_once("];").expect("its end").0;
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect()
}

/// The inline functions of the headers, each with the member through which it calls the driver, if it does.
pub(crate) fn c_inlines() -> BTreeMap<String, Option<String>> {
    let text =
        read("headers/rdma-core/infiniband/verbs.h") + &read("headers/rdma-core/rdma/rdma_cma.h");
    let mut inlines = BTreeMap::new();
    for part in text.split("static inline").skip(1) {
        let head = part.split_once('(').expect("parameters").0;
        let name = head
            .split(|c: char| !is_name(c))
            .rfind(|word| !word.is_empty())
            .expect("a name");
        let body = part.split_once("\n{").expect("a body").1;
        let body = body.split_once("\n}").expect("its end").0;
        inlines.insert(name.to_owned(), member_called(body));
    }
    inlines
}

/// The last `x->member(` or `ops.member(` of a function's body.
fn member_called(body: &str) -> Option<String> {
    let calls = body.match_indices('(').filter_map(|(end, _)| {
        let start = body[..end].rfind(|c| !is_name(c))?;
        let before = &body[..=start];
        let is_member = (before.ends_with("->") || before.ends_with("ops.")) && start + 1 < end;
        is_member.then(|| body[start + 1..end].to_owned())
    });
    calls.into_iter().next_back()
}

/// The inline functions of this crate, each with the member through which it calls the driver, if it does.
pub(crate) fn rust_inlines() -> BTreeMap<String, Option<String>> {
    let mut inlines = BTreeMap::new();
    for file in [
        "cm", "context", "cq_ex", "memory", "objects", "post", "qp_ex", "query",
    ] {
        let text = read(&format!("src/inline/{file}.rs"));
        let text = text.split("#[cfg(test)]").next().expect("a first part");
        for (start, _) in text.match_indices("fn ") {
            let Some(name) = name_after(&text[start..], "fn ") else {
                continue;
            };
            let is_public = text[..start].ends_with("pub ")
                || text[..start].ends_with("pub unsafe ")
                || text[..start].ends_with("pub const ");
            let is_row = text[..start].ends_with("\n    ");
            if is_public || is_row {
                let rest = &text[start..];
                inlines.insert(
                    name,
                    if is_row {
                        member_of_row(rest)
                    } else {
                        member_of_body(rest)
                    },
                );
            }
        }
    }
    inlines
}

/// `fn name(...) -> Type = member of object;`
fn member_of_row(row: &str) -> Option<String> {
    let row = row.split_once(';')?.0;
    name_after(row.rsplit_once('=')?.1.trim_start(), "")
}

/// `entry!(context, member)`, `call!(object, member(`, `ops.member`, or a member of the object itself.
fn member_of_body(text: &str) -> Option<String> {
    let body = text.split_once("\n}").map_or(text, |(body, _)| body);
    [
        "entry!(context, ",
        "ops.",
        "(*dm).",
        "let entry = unsafe { (*wq).",
    ]
    .iter()
    .find_map(|start| after(body, start))
    .or_else(|| {
        let call = body.split_once("call!(")?.1;
        after(call, ", ")
    })
}

fn after(text: &str, start: &str) -> Option<String> {
    name_after(text.split_once(start)?.1, "")
}

/// The name that follows a beginning.
fn name_after(text: &str, start: &str) -> Option<String> {
    let rest = text.strip_prefix(start)?;
    let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
    (!name.is_empty()).then_some(name)
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}
