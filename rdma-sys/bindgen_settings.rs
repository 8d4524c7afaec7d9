//! What is generated and how: one list for `cargo xtask bindings` (from `headers/`) and for the feature
//! `buildtime-bindgen` (from the machine's headers). Both include this file, so the two cannot differ.

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
use bindgen::{Builder, EnumVariation, RustEdition, RustTarget};

/// Types that the `libc` crate has: they differ between systems, and its definitions are right on each of them.
const FROM_LIBC: &str = "sockaddr.*|in_addr.*|in6_addr.*|socklen_t|pthread_.*|__pthread.*|__atomic_wide_counter.*|timespec|.*time_t|.*ssize_t";

/// The same, as they are imported.
const USE_LIBC: &str = "use libc::{
    pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t, timespec,
};";

/// Functions newer than rdma-core 39. A plain reference to one of them would keep a program from loading where the
/// library is older, so they are never declared: `src/probe.rs` looks them up at run time.
const PROBED: &[&str] = &[
    // librdmacm, RDMACM_1.4 (rdma-core 60).
    "rdma_resolve_addrinfo",
    "rdma_query_addrinfo",
    "rdma_write_cm_event",
    // libibverbs, IBVERBS_1.15 (rdma-core 59).
    "ibv_alloc_dmah",
    "ibv_dealloc_dmah",
    "ibv_reg_mr_ex",
    // IBVERBS_1.16 (62).
    "ibv_dm_export_dmabuf_fd",
    "ibv_query_port_speed",
    // IBVERBS_1.17 (64).
    "ibv_alloc_buf",
    "ibv_free_buf",
    "ibv_reg_buf_mr",
    // IBVERBS_1.18 (65).
    "_ibv_query_comp_cntr_caps",
    "ibv_create_comp_cntr",
    "ibv_destroy_comp_cntr",
    "ibv_set_comp_cntr",
    "ibv_set_err_comp_cntr",
    "ibv_inc_comp_cntr",
    "ibv_inc_err_comp_cntr",
    "ibv_read_comp_cntr",
    "ibv_read_err_comp_cntr",
    "ibv_qp_attach_comp_cntr",
    "ibv_export_buf_dmabuf_fd",
];

/// Functions that C programs reach through a macro of the same name, with another meaning: `src/` has the macro's.
const MACROS: &[&str] = &["ibv_query_port", "ibv_reg_mr", "ibv_reg_mr_iova"];

/// Not for use: a private symbol that exists in a range of versions only, and the static linker's entry.
const PRIVATE: &[&str] = &["ibv_wr_opcode_str", "ibv_static_providers"];

/// Macros with a `ULL` suffix above `i64::MAX`, or whose type bindgen gets wrong: `src/consts.rs` has them.
const MISREAD_MACROS: &str =
    "RDMA_IB_IP_PS_MASK|RDMA_IB_IP_PORT_MASK|RDMA_IB_IP_PS_TCP|RDMA_IB_IP_PS_UDP|RDMA_IB_PS_IB";

/// Types that are not wrapped: kernel unions, and a list of drivers that changes with the kernel.
const BLOCKED_TYPES: &str = "rdma_driver_id|ib_uverbs_flow_action.*|ibv_flow_action_esp_attr";

/// Stands for the blocked type: it is only ever behind a pointer.
const OPAQUE_STUB: &str = "/// Opaque: its members are unions of kernel headers.
#[repr(C)]
pub struct ibv_flow_action_esp_attr {
    _opaque: [u8; 0],
}";

/// Enums whose variables hold one value out of a list: newtypes with constants, never Rust enums, because a newer
/// library or kernel may return a number that is not in the list. All others are flags: plain integers.
const NEWTYPES: &[&str] = &[
    "rdma_cm_event_type",
    "rdma_port_space",
    "ibv_atomic_cap",
    "ibv_comp_cntr_type",
    "ibv_counter_description",
    "ibv_event_type",
    "ibv_flow_attr_type",
    "ibv_flow_spec_type",
    "ibv_fork_status",
    "ibv_mig_state",
    "ibv_mtu",
    "ibv_mw_type",
    "ibv_node_type",
    "ibv_ops_wr_opcode",
    "ibv_port_state",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_rate",
    "ibv_rereg_mr_err_code",
    "ibv_srq_type",
    "ibv_transport_type",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wq_state",
    "ibv_wq_type",
    "ibv_wr_opcode",
    "ib_uverbs_advise_mr_advice",
];

/// Objects that the library makes and owns. They are never copied, made or sized here: some have a mutex inside,
/// some grow with the library's version, all are found by their address.
const OWNED: &[&str] = &[
    "rdma_cm_id",
    "rdma_cm_event",
    "rdma_event_channel",
    "ibv_ah",
    "ibv_buf",
    "ibv_comp_channel",
    "ibv_comp_cntr",
    "ibv_context",
    "ibv_counters",
    "ibv_cq",
    "ibv_cq_ex",
    "ibv_device",
    "ibv_dm",
    "ibv_dmah",
    "ibv_flow",
    "ibv_flow_action",
    "ibv_mr",
    "ibv_mw",
    "ibv_pd",
    "ibv_qp",
    "ibv_qp_ex",
    "ibv_rwq_ind_table",
    "ibv_srq",
    "ibv_td",
    "ibv_wq",
    "ibv_xrcd",
    "verbs_context",
];

/// bindgen asks about the types it was told not to generate.
#[derive(Debug)]
struct LibcTypes;

impl ParseCallbacks for LibcTypes {
    fn blocklisted_type_implements_trait(
        &self,
        name: &str,
        derive: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        // Otherwise the unions of sockaddrs in `rdma_addr` would become structs with markers.
        let from_libc = name.contains("sockaddr") || name.contains("timespec");
        (from_libc && derive == DeriveTrait::Copy).then_some(ImplementsTrait::Yes)
    }
}

/// The settings, all but the header and the include path.
pub(super) fn builder() -> Builder {
    let mut builder = bindgen::builder()
        .allowlist_function("rdma_.*|_?ibv_.*|mult_to_ibv_rate|mbps_to_ibv_rate")
        .allowlist_type(
            "rdma_.*|_?ibv_.*|verbs_context|ib_uverbs_advise_mr_.*|ib_uverbs_access_flags",
        )
        .allowlist_var("IBV_.*|RDMA_.*|RAI_.*|IB_ROCE_.*|IB_GRH_.*")
        .blocklist_type(FROM_LIBC)
        .blocklist_type(BLOCKED_TYPES)
        .blocklist_var(MISREAD_MACROS)
        .raw_line(USE_LIBC)
        .raw_line("")
        .raw_line(OPAQUE_STUB)
        .parse_callbacks(Box::new(LibcTypes))
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .layout_tests(false)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .size_t_is_usize(true)
        .use_core()
        .rust_edition(RustEdition::Edition2024)
        .rust_target(RustTarget::stable(85, 0).expect("bindgen knows the workspace's rust-version"))
        .disable_header_comment();
    for name in PROBED.iter().chain(MACROS).chain(PRIVATE) {
        builder = builder.blocklist_function(name);
    }
    for name in NEWTYPES {
        builder = builder.newtype_enum(name);
    }
    for name in OWNED {
        builder = builder.no_copy(*name).no_default(*name);
    }
    builder
}

/// Loads libclang, which bindgen needs and does not bring. The error is for people: bindgen itself would panic.
pub(super) fn find_libclang() -> Result<(), String> {
    if clang_sys::is_loaded() {
        return Ok(());
    }
    clang_sys::load().map_err(|cause| {
        format!(
            "libclang, which makes the bindings, was not found. Install it:\n  \
             Debian, Ubuntu:  apt-get install libclang1 (or a numbered one, such as libclang1-14)\n  \
             Fedora, RHEL:    dnf install clang-libs\n  \
             Arch:            pacman -S clang\n  \
             Alpine:          apk add clang-libclang\n  \
             openSUSE:        zypper install libclang13\n\
             or set LIBCLANG_PATH to the folder that holds libclang.so. ({cause})"
        )
    })
}
