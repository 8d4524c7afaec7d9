//! Every C name leads somewhere: a function, type, enum value or flag of the three headers is an alias in the documentation's
//! search, or is named in `src/not_wrapped.rs`. Read from the sources, with the headers that the bindings are made from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The headers of rdma-core 65, and what `verbs.h` includes for its own names.
const HEADERS: [&str; 4] = [
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
    "infiniband/verbs.h",
    "infiniband/verbs_api.h",
];

/// Aliases that are C's, and of another header: `infiniband/driver.h`.
const OTHER_HEADERS: [&str; 1] = ["ibv_query_gid_type"];

/// What the headers declare.
#[derive(Default)]
struct Names {
    functions: BTreeSet<String>,
    types: BTreeSet<String>,
    values: BTreeSet<String>,
}

impl Names {
    fn of_the_headers() -> Self {
        let mut names = Self::default();
        for header in HEADERS {
            let path = root().join("rdma-sys/headers/rdma-core").join(header);
            names.read(&without_comments(&text(&path)));
        }
        names
    }

    fn read(&mut self, header: &str) {
        let mut depth = 0;
        // The braces of `extern "C"` are around everything, and for C++ only.
        for line in header.replace("extern \"C\" {", "").lines() {
            match line.trim_start().strip_prefix('#') {
                Some(directive) => self.read_macro(directive),
                None => self.read_code(line, &mut depth),
            }
        }
    }

    /// A macro with a value, or with the arguments of a function.
    fn read_macro(&mut self, directive: &str) {
        let Some(rest) = directive.trim_start().strip_prefix("define") else {
            return;
        };
        let rest = rest.trim_start();
        let end = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
        let (name, value) = rest.split_at(end);
        let takes_arguments = value.starts_with('(');
        if value.trim().is_empty() {
            // A guard against a second inclusion.
        } else if is_value(name) && !takes_arguments {
            self.values.insert(name.into());
        } else if is_public(name) && takes_arguments {
            self.functions.insert(name.into());
        } else if is_public(name) {
            self.types.insert(name.into());
        }
    }

    /// Values are in capitals everywhere; what stands outside all braces before a brace is a type, before a bracket a function.
    fn read_code(&mut self, line: &str, depth: &mut usize) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
            if end == 0 {
                match first {
                    '{' => *depth += 1,
                    // The end of `extern "C"` is one too many.
                    '}' => *depth = depth.saturating_sub(1),
                    _ => {}
                }
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let (name, behind) = rest.split_at(end);
            let next = behind.trim_start().chars().next();
            if is_value(name) {
                self.values.insert(name.into());
            } else if *depth == 0 && is_public(name) {
                match next {
                    Some('(') => self.functions.insert(name.into()),
                    Some('{') => self.types.insert(name.into()),
                    _ => false,
                };
            }
            rest = behind;
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.functions.iter().chain(&self.types).chain(&self.values)
    }
}

/// What the sources say of C's names.
struct Documented {
    /// The aliases of items.
    items: BTreeSet<String>,
    /// The aliases of the page `not_wrapped`.
    page: BTreeSet<String>,
    /// What is set as code on that page: names, and patterns with a star.
    named: BTreeSet<String>,
}

impl Documented {
    fn in_the_sources() -> Self {
        let page = root().join("src/not_wrapped.rs");
        let mut items = BTreeSet::new();
        for file in rust_files(&root().join("src")) {
            if file != page {
                items.extend(aliases(&text(&file)));
            }
        }
        let page = text(&page);
        let tables = page.lines().filter(|line| line.starts_with("//!"));
        // Every other piece between backticks is code.
        let named = tables
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .map(str::to_owned)
            .collect();
        Self {
            items,
            page: aliases(&page),
            named,
        }
    }

    fn names(&self, name: &str) -> bool {
        self.named.iter().any(|pattern| matches(pattern, name))
    }
}

#[test]
fn every_c_name_is_an_alias_or_has_its_reason() {
    let (c, documented) = (Names::of_the_headers(), Documented::in_the_sources());
    let missing: Vec<_> = c
        .all()
        .filter(|&name| !documented.items.contains(name) && !documented.names(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{} names of C are no `doc(alias)` in src/, and not in src/not_wrapped.rs: {missing:#?}",
        missing.len()
    );
}

#[test]
fn the_search_leads_from_every_function_to_an_item_or_to_the_page() {
    let (c, documented) = (Names::of_the_headers(), Documented::in_the_sources());
    let missing: Vec<_> = c
        .functions
        .iter()
        .filter(|&name| !documented.items.contains(name) && !documented.page.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{} functions have no alias, not even of src/not_wrapped.rs: {missing:#?}",
        missing.len()
    );
}

#[test]
fn what_is_said_of_c_names_is_of_names_that_c_has() {
    let (c, documented) = (Names::of_the_headers(), Documented::in_the_sources());
    let exists = |pattern: &str| c.all().any(|name| matches(pattern, name));
    let invented: Vec<_> = documented
        .items
        .iter()
        .chain(&documented.page)
        .chain(&documented.named)
        .filter(|said| is_public(said) || is_value(said) || said.contains('*'))
        .filter(|said| !exists(said) && !OTHER_HEADERS.contains(&said.as_str()))
        .collect();
    assert!(invented.is_empty(), "{invented:#?}");
    let unnamed: Vec<_> = documented
        .page
        .iter()
        .filter(|alias| !documented.names(alias))
        .collect();
    assert!(
        unnamed.is_empty(),
        "the search leads from these to a page that says nothing of them: {unnamed:#?}"
    );
}

#[test]
fn the_headers_are_read() {
    let c = Names::of_the_headers();
    for name in ["rdma_accept", "rdma_post_send", "ibv_poll_cq", "ibv_reg_mr"] {
        assert!(c.functions.contains(name), "{name}");
    }
    for name in ["rdma_cm_id", "ibv_wc", "ibv_qp_state", "ibv_gid"] {
        assert!(c.types.contains(name), "{name}");
    }
    for name in [
        "RDMA_CM_EVENT_ESTABLISHED",
        "RDMA_UDP_QKEY",
        "IBV_WC_RECV",
        "IBV_QPS_RTS",
    ] {
        assert!(c.values.contains(name), "{name}");
    }
    let functions = c.functions.len();
    assert!(functions > 200, "{functions} functions");
    // Neither a field that points to a function, nor a call inside another function.
    assert!(!c.functions.contains("post_send"));
    assert!(!c.types.contains("RDMA_CMA_H") && !c.values.contains("RDMA_CMA_H"));
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn without_comments(header: &str) -> String {
    let mut pieces = header.split("/*");
    let mut code = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (comment, behind) = piece.split_once("*/").expect("the end of a comment");
        // The lines stay apart.
        code.extend(comment.chars().filter(|&c| c == '\n'));
        code.push_str(behind);
    }
    code
}

/// The names in `doc(alias = "..")` and `doc(alias("..", ".."))`.
fn aliases(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for attribute in source.split("[doc(alias").skip(1) {
        let (inside, _) = attribute.split_once(")]").expect("the end of an attribute");
        names.extend(inside.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    names
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_value(name: &str) -> bool {
    ["IBV_", "RDMA_", "RAI_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_public(name: &str) -> bool {
    name.chars().all(is_of_a_name)
        && (name.starts_with("ibv_") || name.starts_with("rdma_") || name.ends_with("_to_ibv_rate"))
}

/// Whether `name` is the one that `pattern` is, or one of those that it stands for. `IBV_*` would stand for too many.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            start.len() + end.len() > 4 && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}
