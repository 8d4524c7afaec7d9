/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the bindings are made from. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
