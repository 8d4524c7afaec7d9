//! The names that the oldest supported headers do not have, with the version of rdma-core that brought them. A
//! structure stands for its fields.

/// The version whose names must all be there.
pub(crate) const FLOOR: u32 = 39;

/// The version that the bindings are made from.
pub(crate) const BINDINGS: u32 = 65;

const NEWER: &[(u32, &[&str])] = &[
    (
        44,
        &[
            "IBV_QP_EX_WITH_ATOMIC_WRITE",
            "IBV_WC_ATOMIC_WRITE",
            "IBV_WR_ATOMIC_WRITE",
            "ibv_qp_ex.wr_atomic_write",
        ],
    ),
    (
        45,
        &[
            "IBV_ACCESS_FLUSH_GLOBAL",
            "IBV_ACCESS_FLUSH_PERSISTENT",
            "IBV_FLUSH_GLOBAL",
            "IBV_FLUSH_MR",
            "IBV_FLUSH_PERSISTENT",
            "IBV_FLUSH_RANGE",
            "IBV_QP_EX_WITH_FLUSH",
            "IBV_WC_FLUSH",
            "IBV_WR_FLUSH",
            "IB_UVERBS_ACCESS_FLUSH_GLOBAL",
            "IB_UVERBS_ACCESS_FLUSH_PERSISTENT",
            "ibv_qp_ex.wr_flush",
        ],
    ),
    (
        46,
        &[
            "IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES",
            "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS",
            "IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG",
        ],
    ),
    (
        49,
        &[
            "IBV_PORT_LINK_SPEED_XDR_SUP",
            "ibv_port_attr.active_speed_ex",
        ],
    ),
    (57, &["ibv_fd_arr"]),
    (
        58,
        &["IBV_ODP_SUPPORT_ATOMIC_WRITE", "IBV_ODP_SUPPORT_FLUSH"],
    ),
    (
        59,
        &[
            "IBV_DMAH_INIT_ATTR_MASK_CPU_ID",
            "IBV_DMAH_INIT_ATTR_MASK_PH",
            "IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE",
            "IBV_REG_MR_MASK_ADDR",
            "IBV_REG_MR_MASK_DMAH",
            "IBV_REG_MR_MASK_FD",
            "IBV_REG_MR_MASK_FD_OFFSET",
            "IBV_REG_MR_MASK_IOVA",
            "IBV_TPH_MEM_TYPE_PM",
            "IBV_TPH_MEM_TYPE_VM",
            "ibv_dmah",
            "ibv_dmah_init_attr",
            "ibv_mr_init_attr",
            "verbs_context.alloc_dmah",
            "verbs_context.dealloc_dmah",
            "verbs_context.reg_mr_ex",
        ],
    ),
    (
        60,
        &[
            "IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY",
            "RAI_DNS",
            "RAI_SA",
            "RDMA_CM_EVENT_ADDRINFO_ERROR",
            "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
            "RDMA_CM_EVENT_INTERNAL",
            "RDMA_CM_EVENT_USER",
            "rdma_cm_event.param.arg",
        ],
    ),
    (
        62,
        &[
            "IBV_EVENT_DEVICE_SPEED_CHANGE",
            "verbs_context.dm_export_dmabuf_fd",
        ],
    ),
    (
        64,
        &[
            "IBV_DEVICE_CC_DMA_BOUNCE",
            "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
            "IBV_REG_MR_MASK_BUF",
            "ibv_mr_init_attr.buf",
            "verbs_context.alloc_buf",
            "verbs_context.free_buf",
        ],
    ),
    (
        65,
        &[
            "IBV_COMP_CNTR_TYPE_BYTES",
            "IBV_COMP_CNTR_TYPE_WRS",
            "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ",
            "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE",
            "IBV_QP_ATTACH_COMP_CNTR_OP_RECV",
            "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ",
            "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE",
            "IBV_QP_ATTACH_COMP_CNTR_OP_SEND",
            "ibv_comp_cntr",
            "ibv_comp_cntr_caps",
            "ibv_comp_cntr_init_attr",
            "ibv_comp_cntr_type",
            "ibv_qp_attach_comp_cntr_attr",
        ],
    ),
];

/// Since which version headers have what a check is about.
pub(crate) fn since(check: &str) -> u32 {
    // Checks are called `name`, `name, its size` or `name.field, its offset`.
    let name = check.split(',').next().unwrap_or(check);
    let is_of = |newer: &str| {
        name.strip_prefix(newer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    NEWER
        .iter()
        .filter(|(_, names)| names.iter().any(|newer| is_of(newer)))
        .map(|(version, _)| *version)
        .max()
        .unwrap_or(FLOOR)
}
