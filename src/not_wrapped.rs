//! What librdmacm and libibverbs have, and this crate has in no safe form: why, and what to use instead.
//!
//! A name with a star stands for all that begin or end so. The test `c_names` sees to it that every function, type, enum value
//! and flag of `rdma_cma.h`, `rdma_verbs.h` and `verbs.h` is found by the search of this documentation, or named here. The raw
//! symbols are in `rdmacm-sys`; pointers for them come from methods such as [`QueuePair::as_raw`](crate::QueuePair::as_raw).
//!
//! # librdmacm
//!
//! | name | why, and what instead |
//! |---|---|
//! | `rdma_create_ep`, `rdma_get_request`, `rdma_destroy_ep` | synchronous ids: their calls wait inside the library, for ever if the peer wills, and a failed `rdma_get_request` loses the new id. [`Listener`](crate::Listener) and [`Connector`](crate::Connector) are what they are for |
//! | `rdma_create_id` without a channel, `rdma_migrate_id` to none | the same |
//! | `rdma_destroy_qp` | returns nothing and forgets a queue pair that is still alive; [`QueuePair::close`](crate::QueuePair::close) and [`destroy`](crate::QueuePair::destroy) report the error |
//! | `rdma_create_srq`, `rdma_create_srq_ex`, `rdma_destroy_srq` | keep the shared receive queue in the id, whose end then depends on it; [`ProtectionDomain::create_srq`](crate::ProtectionDomain::create_srq) makes one |
//! | `rdma_get_devices`, `rdma_free_devices` | open every device of the machine and keep it from being removed; [`CmId::context`](crate::CmId::context) gives the one that an address is on |
//! | `rdma_getaddrinfo`, `rdma_freeaddrinfo`, `rdma_addrinfo`, `RAI_PASSIVE`, `RAI_NUMERICHOST`, `RAI_NOROUTE`, `RAI_FAMILY`, `RAI_SA`, `RAI_DNS` | [`std::net::ToSocketAddrs`] does the job, without results that an IP listener cannot match |
//! | `rdma_seterrno` | calls give a [`Result`](crate::Result), whose [`Error`](crate::Error) has the number |
//! | `RDMA_PS_IB`, `RDMA_PS_IPOIB`, `RDMA_IB_IP_*`, `RDMA_IB_PS_IB`, the addresses of `AF_IB` | addresses here are IP addresses, which InfiniBand has, too; [`CmId::new`](crate::CmId::new) and [`new_datagram`](crate::CmId::new_datagram) are the two port spaces for them |
//! | `RDMA_OPTION_IB`, `RDMA_OPTION_IB_PATH`, `rdma_route`, `rdma_ib_addr` | path records, of InfiniBand: the library finds the path itself. [`QpAttributes::address`](crate::QpAttributes::address) tells which way a connection goes |
//! | `rsocket` and its family | sockets in all but name, with file descriptors that the library does not check |
//!
//! Not wrapped yet: what came with rdma-core 60 (`rdma_resolve_addrinfo`, `rdma_query_addrinfo`, `rdma_write_cm_event`).
//!
//! # libibverbs: devices and ports
//!
//! | name | why, and what instead |
//! |---|---|
//! | `ibv_get_device_list`, `ibv_free_device_list`, `ibv_open_device`, `ibv_close_device`, `ibv_get_device_index`, `ibv_device`, `IBV_SYSFS_*` | the connection manager opens a device when an id is bound to an address on it, and notices its removal; [`CmId::context`](crate::CmId::context) gives it, also for queue pairs connected by hand |
//! | `ibv_import_device`, `ibv_import_pd`, `ibv_unimport_pd`, `ibv_import_mr`, `ibv_unimport_mr`, `ibv_import_dm`, `ibv_unimport_dm` | objects of another process, which may end them while they are used here |
//! | `ibv_fork_init`, `ibv_is_fork_initialized`, `ibv_fork_status`, `IBV_FORK_*` | a matter of the whole process, before the first registration, and not needed on newer kernels: [a process that forks](crate::soundness#a-process-that-forks) |
//! | `ibv_query_pkey`, `ibv_get_pkey_index` | the table is in `/sys/class/infiniband`; [`ResetQp::pkey_index`](crate::ResetQp::pkey_index) and [`DatagramInit::pkey_index`](crate::DatagramInit::pkey_index) take an index |
//! | `ibv_node_type`, `ibv_node_type_str`, `IBV_NODE_*`, `IBV_TRANSPORT_*` | all that makes a difference is [`Context::is_iwarp`](crate::Context::is_iwarp) |
//! | `ibv_port_state_str`, `ibv_wr_opcode_str` | [`PortState`](crate::PortState) and [`Op`](crate::Op) have `Debug` |
//! | `ibv_port_cap_flags2`, `IBV_PORT_SET_NODE_DESC_SUP`, `IBV_PORT_INFO_EXT_SUP`, `IBV_PORT_VIRT_SUP`, `IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP`, `IBV_PORT_LINK_WIDTH_2X_SUP`, `IBV_PORT_LINK_SPEED_HDR_SUP`, `IBV_PORT_LINK_SPEED_NDR_SUP`, `IBV_PORT_LINK_SPEED_XDR_SUP` | of interest to a subnet manager; [`Port::as_raw`](crate::Port::as_raw) has them |
//! | `IBV_PORT_MKEY_NVRAM`, `IBV_PORT_PKEY_NVRAM`, `IBV_PORT_LED_INFO_SUP`, `IBV_PORT_SYS_IMAGE_GUID_SUP`, `IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP`, `IBV_PORT_SNMP_TUNNEL_SUP`, `IBV_PORT_DR_NOTICE_SUP`, `IBV_PORT_CAP_MASK_NOTICE_SUP`, `IBV_PORT_BOOT_MGMT_SUP` | the same; [`PortFlags`](crate::PortFlags) keeps the bits without a name |
//! | `IBV_DEVICE_CC_DMA_BOUNCE` | newer than the names of [`DeviceFlags`](crate::DeviceFlags), which keeps the bit |
//! | `ibv_query_port_speed` | came with rdma-core 62; [`Port::megabits`](crate::Port::megabits) knows the speed of the link |
//! | `ibv_is_qpt_supported`, `ibv_tso_caps`, `ibv_rss_caps`, `ibv_tm_caps`, `ibv_packet_pacing_caps`, `ibv_raw_packet_caps`, `IBV_RAW_PACKET_CAP_*`, `ibv_cq_moderation_caps`, `ibv_pci_atomic_caps`, `ibv_pci_atomic_op_size`, `IBV_PCI_ATOMIC_OPERATION_*` | about what is not wrapped; [`DeviceLimits::as_raw`](crate::DeviceLimits::as_raw) has them |
//! | `ibv_query_rt_values_ex`, `ibv_values_ex`, `ibv_values_mask`, `IBV_VALUES_MASK_*` | the device's clock, for time stamps, which are not wrapped either |
//! | `ibv_query_device_ex_input`, `ibv_poll_cq_attr` | arguments that are empty |
//! | `*_RESERVED` | marks the end of a list |
//! | `ibv_context_ops` | the provider's functions, which the functions here call |
//! | `ibv_static_providers`, `RDMA_STATIC_PROVIDERS` | static linking, which `rdmacm-sys` does not do |
//!
//! # libibverbs: memory
//!
//! | name | why, and what instead |
//! |---|---|
//! | `ibv_rereg_mr`, `ibv_rereg_mr_flags`, `ibv_rereg_mr_err_code`, `IBV_REREG_MR_*` | changes a registration under the requests that use it; [`Exposed::revoke`](crate::Exposed::revoke) and [`Pool::into_owner`](crate::Pool::into_owner) give the memory back to be registered anew |
//! | `ibv_reg_mr_iova`, `ibv_reg_mr_iova2`, `IBV_ACCESS_ZERO_BASED` | another address for memory that a [`RemoteMemory`](crate::RemoteMemory) names anyway |
//! | implicit on-demand regions, `ibv_alloc_null_mr` | a key for all of the process's memory; a key for none |
//! | `ibv_advise_mr`, `ibv_advise_mr_advice`, `IBV_ADVISE_MR_*` | pages that are fetched before they are used; without it [on-demand](crate::Registration::on_demand) memory is slow once |
//! | `IBV_ACCESS_HUGETLB` | for on-demand memory only; [`MappedMemory::huge`](crate::MappedMemory::huge) is registered without it |
//! | `IBV_ACCESS_OPTIONAL_*` | the range of flags that a device may ignore; [`Registration::relaxed_ordering`](crate::Registration::relaxed_ordering) is the one there is |
//! | `ibv_alloc_dm`, `ibv_free_dm`, `ibv_reg_dm_mr`, `ibv_memcpy_to_dm`, `ibv_memcpy_from_dm`, `ibv_dm_export_dmabuf_fd`, `ibv_dm`, `ibv_dm_mask`, `ibv_alloc_dm_attr`, `IBV_DM_MASK_*` | the device's own memory, which a [`Buf`](crate::Buf) has no bytes of; [`max_dm_size`](crate::DeviceLimits::max_dm_size) says how much there is |
//! | `ibv_alloc_td`, `ibv_dealloc_td`, `ibv_td`, `ibv_td_init_attr`, `ibv_alloc_parent_domain`, `ibv_parent_domain_init_attr`, `ibv_parent_domain_init_attr_mask`, `IBV_PARENT_DOMAIN_INIT_ATTR_*`, `IBV_ALLOCATOR_USE_DEFAULT` | drop the provider's locks, and take the memory of its queues from the program: nothing here could check the promise |
//! | `ibv_reg_mr_ex`, `ibv_mr_init_attr`, `ibv_mr_init_attr_mask`, `ibv_fd_arr`, `IBV_REG_MR_MASK_*`, `ibv_alloc_dmah`, `ibv_dealloc_dmah`, `ibv_dmah`, `ibv_dmah_init_attr`, `ibv_dmah_init_attr_mask`, `IBV_DMAH_INIT_ATTR_MASK_*`, `ibv_tph_mem_type`, `IBV_TPH_MEM_TYPE_*`, `ibv_alloc_buf`, `ibv_free_buf`, `ibv_reg_buf_mr`, `ibv_export_buf_dmabuf_fd` | came with rdma-core 59 to 65. Registrations: [`ProtectionDomain::pool_of`](crate::ProtectionDomain::pool_of), [`expose_memory`](crate::ProtectionDomain::expose_memory), [`expose_dmabuf`](crate::ProtectionDomain::expose_dmabuf) |
//!
//! # libibverbs: completions
//!
//! | name | why, and what instead |
//! |---|---|
//! | `ibv_resize_cq` | what may be posted is counted against the size of the queue; [`Context::create_cq`](crate::Context::create_cq) with room for all |
//! | `ibv_modify_cq`, `ibv_modify_cq_attr`, `ibv_moderate_cq`, `ibv_cq_attr_mask`, `IBV_CQ_ATTR_*` | fewer events, and later ones: few devices have it, soft-RoCE not. [`Work::unsignaled`](crate::Work::unsignaled) makes fewer completions, and polling before [`wait`](crate::CompletionQueue::wait) needs fewer events |
//! | `ibv_create_cq_ex`, `ibv_cq_ex`, `ibv_cq_ex_to_cq`, `ibv_cq_init_attr_ex`, `ibv_cq_init_attr_mask`, `IBV_CQ_INIT_ATTR_MASK_*`, `ibv_create_cq_attr_flags`, `IBV_CREATE_CQ_*`, `ibv_create_cq_wc_flags`, `IBV_WC_EX_WITH_*`, `IBV_WC_STANDARD_FLAGS`, `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`, `ibv_wc_read_*` | another way to poll, for time stamps and tags; [`CompletionQueue::poll`](crate::CompletionQueue::poll) tells all else |
//! | completion vectors | queues here are all on vector 0 |
//! | one completion channel for several queues | each queue has its own; [`event_fd`](crate::CompletionQueue::event_fd) of each goes into the program's `epoll` |
//! | `ibv_create_comp_cntr`, `ibv_destroy_comp_cntr`, `ibv_set_comp_cntr`, `ibv_set_err_comp_cntr`, `ibv_inc_comp_cntr`, `ibv_inc_err_comp_cntr`, `ibv_read_comp_cntr`, `ibv_read_err_comp_cntr`, `ibv_query_comp_cntr_caps`, `ibv_qp_attach_comp_cntr`, `ibv_comp_cntr*`, `IBV_COMP_CNTR_TYPE_*`, `ibv_qp_attach_comp_cntr_*`, `IBV_QP_ATTACH_COMP_CNTR_OP_*` | counters in place of completions, which came with rdma-core 65: a buffer comes back by its completion only |
//!
//! # libibverbs: queue pairs
//!
//! | name | why, and what instead |
//! |---|---|
//! | `ibv_query_srq`, `IBV_SRQ_MAX_WR` | what was granted, and another size later; [`SharedReceiveQueue::depth`](crate::SharedReceiveQueue::depth) is what may be posted, and fixed |
//! | `ibv_open_xrcd`, `ibv_close_xrcd`, `ibv_xrcd`, `ibv_xrcd_init_attr`, `ibv_xrcd_init_attr_mask`, `IBV_XRCD_INIT_ATTR_*`, `ibv_open_qp`, `ibv_qp_open_attr`, `ibv_qp_open_attr_mask`, `IBV_QP_OPEN_ATTR_*`, `IBV_QPT_XRC_*`, `ibv_get_srq_num`, `ibv_wr_set_xrc_srqn` | extended reliable connections, whose queue pairs other processes share |
//! | `ibv_create_srq_ex`, `ibv_srq_init_attr_ex`, `ibv_srq_init_attr_mask`, `IBV_SRQ_INIT_ATTR_*`, `ibv_srq_type`, `IBV_SRQT_*` | for extended reliable connections and tags; [`ProtectionDomain::create_srq`](crate::ProtectionDomain::create_srq) makes the basic kind |
//! | `ibv_post_srq_ops`, `ibv_ops_wr`, `ibv_ops_wr_opcode`, `ibv_ops_flags`, `IBV_OPS_*`, `IBV_WR_TAG_*`, `ibv_tm_cap`, `ibv_tm_cap_flags`, `IBV_TM_CAP_RC`, `ibv_wc_tm_info`, `IBV_WC_TM_*` | the device sorts messages by tags: mlx5 alone |
//! | `ibv_qp_init_attr_mask`, `IBV_QP_INIT_ATTR_*`, `ibv_qp_create_send_ops_flags`, `IBV_QP_EX_WITH_*` | the crate sets them; [`SendQueue::batch`](crate::SendQueue::batch) posts by calls where the provider can |
//! | `ibv_qp_create_flags`, `IBV_QP_CREATE_*` | for raw packets, and for IP over InfiniBand |
//! | `IBV_QPT_DRIVER`, `IBV_WR_DRIVER1`, `IBV_WC_DRIVER*` | what they mean is the provider's |
//! | `IBV_QP_CUR_STATE`, `IBV_QP_EN_SQD_ASYNC_NOTIFY` | moving to SQD, where sends are held back: few devices have it. What is not posted is not sent |
//! | `IBV_QP_ALT_PATH`, `IBV_QP_PATH_MIG_STATE`, `ibv_mig_state`, `IBV_MIG_*` | a second path, of InfiniBand; a new connection takes another one |
//! | `ibv_modify_qp_rate_limit`, `ibv_qp_rate_limit_attr`, `IBV_QP_RATE_LIMIT`, `ibv_rate`, `IBV_RATE_*`, `ibv_rate_to_mbps`, `ibv_rate_to_mult`, `mbps_to_ibv_rate`, `mult_to_ibv_rate` | a device sends as fast as its link; a program that is to be slower posts less at a time |
//! | `ibv_set_ece`, `ibv_query_ece` | [`CmId::set_local_ece`](crate::CmId::set_local_ece) and [`remote_ece`](crate::CmId::remote_ece) exchange what they are about; the library applies it to its own queue pairs |
//! | `ibv_query_qp_data_in_order`, `ibv_query_qp_data_in_order_*`, `IBV_QUERY_QP_DATA_IN_ORDER_*` | for programs that look at memory while the device writes it, which safe code cannot |
//! | `ibv_resolve_eth_l2_from_gid`, `ibv_flow_label_to_udp_sport` | what a provider does itself with an [`AddressVector`](crate::AddressVector) |
//!
//! # libibverbs: work requests
//!
//! | name | why, and what instead |
//! |---|---|
//! | `ibv_wr_set_inline_data_list`, `ibv_data_buf` | [`Inline`](crate::Inline) takes one piece: put them together first, they are few bytes |
//! | `ibv_wr_atomic_write`, `IBV_WR_ATOMIC_WRITE`, `IBV_WC_ATOMIC_WRITE` | hardly a device has it; [`compare_swap`](crate::Fetch::compare_swap) changes eight bytes as one |
//! | `ibv_wr_flush`, `IBV_WR_FLUSH`, `IBV_WC_FLUSH`, `IBV_ACCESS_FLUSH_*`, `ibv_placement_type`, `ibv_selectivity_level`, `IBV_FLUSH_*` | for memory that outlives its machine: hardly a device has it; a [read](crate::Fetch::read) after a write ends when the write has arrived |
//! | `ibv_wr_send_tso`, `IBV_WR_TSO`, `IBV_WC_TSO`, `IBV_SEND_IP_CSUM`, `IBV_WC_IP_CSUM_OK*` | IP packets over datagrams, which the kernel's network stack does |
//! | `IBV_QPT_RAW_PACKET`, `ibv_create_flow`, `ibv_destroy_flow`, `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`, `ibv_destroy_flow_action`, `ibv_flow*`, `IBV_FLOW_*` | whole Ethernet frames, for programs that are a network stack |
//! | `ibv_create_counters`, `ibv_destroy_counters`, `ibv_read_counters`, `ibv_attach_counters_point_flow`, `ibv_counter*`, `IBV_COUNTER_*`, `ibv_read_counters_flags`, `IBV_READ_COUNTERS_*` | the same: they count such frames |
//! | `ibv_create_wq`, `ibv_modify_wq`, `ibv_destroy_wq`, `ibv_post_wq_recv`, `ibv_wq*`, `IBV_WQ*`, `ibv_create_rwq_ind_table`, `ibv_destroy_rwq_ind_table`, `ibv_rwq_ind_table*`, `ibv_ind_table_init_attr_mask`, `ibv_rx_hash_*`, `IBV_RX_HASH_*` | the same: they spread such frames over queues |

#![doc(alias(
    "ibv_advise_mr",
    "ibv_alloc_buf",
    "ibv_alloc_dm",
    "ibv_alloc_dmah",
    "ibv_alloc_null_mr",
    "ibv_alloc_parent_domain",
    "ibv_alloc_td",
    "ibv_attach_counters_point_flow",
    "ibv_close_device",
    "ibv_close_xrcd",
    "ibv_cq_ex_to_cq",
    "ibv_create_comp_cntr",
    "ibv_create_counters",
    "ibv_create_cq_ex",
    "ibv_create_flow",
    "ibv_create_flow_action_esp",
    "ibv_create_rwq_ind_table",
    "ibv_create_srq_ex",
    "ibv_create_wq",
    "ibv_dealloc_dmah",
    "ibv_dealloc_td",
    "ibv_destroy_comp_cntr",
    "ibv_destroy_counters",
    "ibv_destroy_flow",
    "ibv_destroy_flow_action",
    "ibv_destroy_rwq_ind_table",
    "ibv_destroy_wq",
    "ibv_dm_export_dmabuf_fd",
    "ibv_end_poll",
    "ibv_export_buf_dmabuf_fd",
    "ibv_flow_label_to_udp_sport",
    "ibv_fork_init",
    "ibv_free_buf",
    "ibv_free_device_list",
    "ibv_free_dm",
    "ibv_get_device_index",
    "ibv_get_device_list",
    "ibv_get_pkey_index",
    "ibv_get_srq_num",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_inc_comp_cntr",
    "ibv_inc_err_comp_cntr",
    "ibv_is_fork_initialized",
    "ibv_is_qpt_supported",
    "ibv_memcpy_from_dm",
    "ibv_memcpy_to_dm",
    "ibv_modify_cq",
    "ibv_modify_flow_action_esp",
    "ibv_modify_qp_rate_limit",
    "ibv_modify_wq",
    "ibv_next_poll",
    "ibv_node_type_str",
    "ibv_open_device",
    "ibv_open_qp",
    "ibv_open_xrcd",
    "ibv_port_state_str",
    "ibv_post_srq_ops",
    "ibv_post_wq_recv",
    "ibv_qp_attach_comp_cntr",
    "ibv_query_comp_cntr_caps",
    "ibv_query_ece",
    "ibv_query_pkey",
    "ibv_query_port_speed",
    "ibv_query_qp_data_in_order",
    "ibv_query_rt_values_ex",
    "ibv_query_srq",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_comp_cntr",
    "ibv_read_counters",
    "ibv_read_err_comp_cntr",
    "ibv_reg_buf_mr",
    "ibv_reg_dm_mr",
    "ibv_reg_mr_ex",
    "ibv_reg_mr_iova",
    "ibv_reg_mr_iova2",
    "ibv_rereg_mr",
    "ibv_resize_cq",
    "ibv_resolve_eth_l2_from_gid",
    "ibv_set_comp_cntr",
    "ibv_set_ece",
    "ibv_set_err_comp_cntr",
    "ibv_start_poll",
    "ibv_static_providers",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "ibv_wc_read_byte_len",
    "ibv_wc_read_completion_ts",
    "ibv_wc_read_completion_wallclock_ns",
    "ibv_wc_read_cvlan",
    "ibv_wc_read_dlid_path_bits",
    "ibv_wc_read_flow_tag",
    "ibv_wc_read_imm_data",
    "ibv_wc_read_invalidated_rkey",
    "ibv_wc_read_opcode",
    "ibv_wc_read_qp_num",
    "ibv_wc_read_sl",
    "ibv_wc_read_slid",
    "ibv_wc_read_src_qp",
    "ibv_wc_read_tm_info",
    "ibv_wc_read_vendor_err",
    "ibv_wc_read_wc_flags",
    "ibv_wr_atomic_write",
    "ibv_wr_flush",
    "ibv_wr_opcode_str",
    "ibv_wr_send_tso",
    "ibv_wr_set_inline_data_list",
    "ibv_wr_set_xrc_srqn",
    "mbps_to_ibv_rate",
    "mult_to_ibv_rate",
    "rdma_create_ep",
    "rdma_create_srq",
    "rdma_create_srq_ex",
    "rdma_destroy_ep",
    "rdma_destroy_qp",
    "rdma_destroy_srq",
    "rdma_free_devices",
    "rdma_freeaddrinfo",
    "rdma_get_devices",
    "rdma_get_request",
    "rdma_getaddrinfo",
    "rdma_query_addrinfo",
    "rdma_resolve_addrinfo",
    "rdma_seterrno",
    "rdma_write_cm_event"
))]
