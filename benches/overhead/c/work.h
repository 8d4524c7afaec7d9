/* What the loops work on. The same as src/sizes.rs, and `Work` in src/c.rs. */
#ifndef OVERHEAD_WORK_H
#define OVERHEAD_WORK_H

#include <infiniband/verbs.h>

enum {
	PAIRS = 8,
	BUFFERS = 64,
	BUFFER_SIZE = 64,
	INLINE_SIZE = 32,
	BATCH = 32,
	RUN = 16,
};

struct work {
	struct ibv_qp *qps[PAIRS];
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	/* Of the loops' memory, if there is a device behind them. */
	uint32_t lkey;
};

#endif
