//! The ABI test: size, alignment and the place of every field of every structure, and the value of every constant, as
//! Rust has them and as the machine's C compiler has them from the installed headers.
//!
//! It writes a C program, compiles it with `cc` (or `$CC`), runs it and compares. Headers older than the bindings lack
//! some names. The compiler's own errors tell which, and each of them must be in the list of what is newer than the
//! oldest supported headers: whatever else is missing is a failure.
//!
//! `RDMA_CORE_INCLUDE_DIR` names other headers than the installed ones.

#![expect(unsafe_code, reason = "a field's type is found through a raw pointer")]

#[path = "layout/c.rs"]
mod c;
#[path = "layout/newer.rs"]
mod newer;

use core::ffi::c_void;
use core::mem::{align_of, offset_of, size_of};

use rdma_sys::*;

/// A number that C must have, too.
struct Check {
    /// What it is, for messages and for the list of newer names.
    name: String,
    /// The same in C.
    expression: String,
    /// The same in Rust.
    value: u64,
    rule: Rule,
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Equal,
    /// Smaller where the headers lack a member, larger where they are newer than the bindings.
    Grows,
}

/// Structures to which rdma-core has added members at an end. `verbs_context` grows at its front, so its members are
/// compared by their distance back from `context`.
const GROWING: [&str; 4] = [
    "ibv_port_attr",
    "ibv_qp_ex",
    "ibv_mr_init_attr",
    "verbs_context",
];

/// A structure's checks, as far as its own name is concerned.
fn whole(keyword: &str, name: &str, size: usize, align: usize) -> [Check; 2] {
    let rule = if GROWING.contains(&name) {
        Rule::Grows
    } else {
        Rule::Equal
    };
    [
        Check {
            name: format!("{name}, its size"),
            expression: format!("sizeof({keyword} {name})"),
            value: number(size),
            rule,
        },
        Check {
            name: format!("{name}, its alignment"),
            expression: format!("_Alignof({keyword} {name})"),
            value: number(align),
            rule: Rule::Equal,
        },
    ]
}

/// A field's checks. `end` is the offset of the last member, of structures that grow at the front.
fn field(
    keyword: &str,
    name: &str,
    path: &str,
    offset: usize,
    size: usize,
    end: Option<usize>,
) -> [Check; 2] {
    let place = format!("offsetof({keyword} {name}, {path})");
    let (what, expression, value) = match end {
        None => ("its offset", place, offset),
        Some(end) => (
            "its distance from the end",
            format!("offsetof({keyword} {name}, context) - {place}"),
            end - offset,
        ),
    };
    [
        Check {
            name: format!("{name}.{path}, {what}"),
            expression,
            value: number(value),
            rule: Rule::Equal,
        },
        Check {
            name: format!("{name}.{path}, its size"),
            expression: format!("sizeof((({keyword} {name} *)0)->{path})"),
            value: number(size),
            rule: Rule::Equal,
        },
    ]
}

/// Constants, widened with their sign as C does it.
trait Constant {
    fn widened(self) -> u64;
}

impl Constant for u64 {
    fn widened(self) -> u64 {
        self
    }
}

impl Constant for u32 {
    fn widened(self) -> u64 {
        u64::from(self)
    }
}

impl Constant for u8 {
    fn widened(self) -> u64 {
        u64::from(self)
    }
}

impl Constant for i32 {
    fn widened(self) -> u64 {
        u64::from_ne_bytes(i64::from(self).to_ne_bytes())
    }
}

impl Constant for *mut c_void {
    fn widened(self) -> u64 {
        number(self.addr())
    }
}

fn number(value: usize) -> u64 {
    u64::try_from(value).expect("no machine has wider addresses")
}

/// The size of what a pointer points to, of a function that is never called.
fn size_behind<S, F>(_field: fn(*const S) -> *const F) -> usize {
    size_of::<F>()
}

macro_rules! structs {
    ($($keyword:ident $name:ident { $($c_path:literal $($rust_path:ident).+;)* })*) => {
        fn structs() -> Vec<Check> {
            let mut checks = Vec::new();
            $(
                checks.extend(whole(stringify!($keyword), stringify!($name), size_of::<$name>(), align_of::<$name>()));
                let end = (stringify!($name) == "verbs_context").then_some(offset_of!(verbs_context, context));
                $(
                    checks.extend(field(
                        stringify!($keyword),
                        stringify!($name),
                        $c_path,
                        offset_of!($name, $($rust_path).+),
                        size_behind(|outer: *const $name| {
                            // SAFETY: never called.
                            unsafe { &raw const (*outer).$($rust_path).+ }
                        }),
                        end,
                    ));
                )*
            )*
            checks
        }
    };
}

macro_rules! enums {
    ($($name:ident;)*) => {
        fn enums() -> Vec<Check> {
            let mut checks = Vec::new();
            $(checks.extend(whole("enum", stringify!($name), size_of::<$name>(), align_of::<$name>()));)*
            checks
        }
    };
}

macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        fn constants() -> Vec<Check> {
            vec![$(constant(stringify!($name), Constant::widened($value))),*]
        }
    };
}

include!("layout/items.rs");

fn constant(name: &str, value: u64) -> Check {
    Check {
        name: name.to_owned(),
        expression: name.to_owned(),
        value,
        rule: Rule::Equal,
    }
}

/// What is not in the generated file: `src/consts.rs`.
mod by_hand {
    use super::*;

    structs! {
        struct sockaddr_ib {
            "sib_family" sib_family;
            "sib_pkey" sib_pkey;
            "sib_flowinfo" sib_flowinfo;
            "sib_addr" sib_addr;
            "sib_sid" sib_sid;
            "sib_sid_mask" sib_sid_mask;
            "sib_scope_id" sib_scope_id;
        }
    }

    constants! {
        RDMA_IB_IP_PS_MASK = RDMA_IB_IP_PS_MASK;
        RDMA_IB_IP_PORT_MASK = RDMA_IB_IP_PORT_MASK;
        RDMA_IB_IP_PS_TCP = RDMA_IB_IP_PS_TCP;
        RDMA_IB_IP_PS_UDP = RDMA_IB_IP_PS_UDP;
        RDMA_IB_PS_IB = RDMA_IB_PS_IB;
        AF_IB = AF_IB;
        PF_IB = PF_IB;
        IBV_ALLOCATOR_USE_DEFAULT = IBV_ALLOCATOR_USE_DEFAULT;
        IBV_ACCESS_OPTIONAL_RANGE = IBV_ACCESS_OPTIONAL_RANGE;
        IBV_QPF_GRH_REQUIRED = IBV_QPF_GRH_REQUIRED;
        IBV_ADVISE_MR_ADVICE_PREFETCH = IBV_ADVISE_MR_ADVICE_PREFETCH.0;
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE.0;
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT.0;
        IBV_ADVISE_MR_FLAG_FLUSH = IBV_ADVISE_MR_FLAG_FLUSH;
    }

    pub(super) fn all() -> impl Iterator<Item = Check> {
        structs().into_iter().chain(constants())
    }
}

#[test]
fn rust_and_c_agree_on_every_structure_and_constant() {
    let checks: Vec<Check> = structs()
        .into_iter()
        .chain(enums())
        .chain(constants())
        .chain(by_hand::all())
        .collect();
    let expressions: Vec<&str> = checks
        .iter()
        .map(|check| check.expression.as_str())
        .collect();
    let values = c::evaluate(&expressions);

    let version = c::headers_version().unwrap_or(newer::FLOOR);
    let missing: Vec<&str> = checks
        .iter()
        .zip(&values)
        .filter(|(_, value)| value.is_none())
        .map(|(check, _)| check.name.as_str())
        .collect();
    let lacks_a_member = |check: &Check| {
        let member = check.name.replace(", its size", ".");
        missing.iter().any(|name| name.starts_with(&member))
    };
    let is_right = |check: &Check, value: u64| {
        value == check.value
            || check.rule == Rule::Grows
                && if value < check.value {
                    lacks_a_member(check)
                } else {
                    version > newer::BINDINGS
                }
    };
    let wrong: Vec<String> = checks
        .iter()
        .zip(&values)
        .filter_map(|(check, value)| Some((check, (*value)?)))
        .filter(|(check, value)| !is_right(check, *value))
        .map(|(check, value)| format!("{}: {} in Rust, {value} in C", check.name, check.value))
        .collect();
    assert!(
        wrong.is_empty(),
        "the bindings differ from the C headers:\n{}",
        wrong.join("\n")
    );

    let unexpected: Vec<&str> = missing
        .iter()
        .copied()
        .filter(|name| newer::since(name) <= version)
        .collect();
    assert!(
        unexpected.is_empty(),
        "these headers lack what rdma-core {version} has:\n{}",
        unexpected.join("\n")
    );
    let mut names: Vec<&str> = missing
        .iter()
        .filter_map(|name| name.split(',').next())
        .collect();
    names.dedup();
    println!(
        "{} numbers agree; {} are about names newer than these headers: {}",
        checks.len() - missing.len(),
        missing.len(),
        names.join(" ")
    );
}
