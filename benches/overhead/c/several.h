/* Several requests to one doorbell, or to one completion. */
#include "common.h"

/* A batch: requests of one list, which one post hands over. */

/* Polls until a batch is done, and puts the wr_ids at `ids`. */
static ALWAYS_INLINE int finish_batch(struct ibv_cq *cq, uint64_t *ids)
{
	struct ibv_wc wcs[BATCH];

	for (int done = 0; done < BATCH;) {
		int got = poll(cq, BATCH, wcs);

		if (got < 0)
			return -1;
		for (int i = 0; i < got; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS)
				return -1;
			ids[done++] = wcs[i].wr_id;
		}
	}
	return 0;
}

int loop_c_batch_kept(struct work *work, long count)
{
	struct ibv_sge sges[BATCH];
	struct ibv_send_wr wrs[BATCH];
	struct ibv_send_wr *bad_wr;
	uint64_t buffers[BATCH];

	for (int i = 0; i < BATCH; i++) {
		sges[i] = (struct ibv_sge){ .length = BUFFER_SIZE, .lkey = LKEY };
		wrs[i] = (struct ibv_send_wr){
			.next = i + 1 < BATCH ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};
		buffers[i] = (uintptr_t)memory[i];
	}
	for (long posted = 0; posted < count; posted += BATCH) {
		for (int i = 0; i < BATCH; i++) {
			wrs[i].wr_id = buffers[i];
			sges[i].addr = buffers[i];
		}
		if (ibv_post_send(work->qps[0], wrs, &bad_wr))
			return -1;
		if (finish_batch(work->cq, buffers))
			return -1;
	}
	return 0;
}

int loop_c_batch_written(struct work *work, long count)
{
	struct ibv_sge sges[BATCH];
	struct ibv_send_wr wrs[BATCH];
	struct ibv_send_wr *bad_wr;
	uint64_t buffers[BATCH];

	for (int i = 0; i < BATCH; i++)
		buffers[i] = (uintptr_t)memory[i];
	for (long posted = 0; posted < count; posted += BATCH) {
		for (int i = 0; i < BATCH; i++) {
			sges[i] = (struct ibv_sge){
				.addr = buffers[i],
				.length = BUFFER_SIZE,
				.lkey = LKEY,
			};
			wrs[i] = (struct ibv_send_wr){
				.wr_id = buffers[i],
				.next = i + 1 < BATCH ? &wrs[i + 1] : NULL,
				.sg_list = &sges[i],
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
			};
		}
		if (ibv_post_send(work->qps[0], wrs, &bad_wr))
			return -1;
		if (finish_batch(work->cq, buffers))
			return -1;
	}
	return 0;
}

/* Gives the requests of a batch back to the list. */
static ALWAYS_INLINE int give_back_batch(struct ibv_cq *cq, struct list *list)
{
	struct ibv_wc wcs[BATCH];

	for (int done = 0; done < BATCH;) {
		int got = poll(cq, BATCH, wcs);

		if (got < 0)
			return -1;
		for (int i = 0; i < got; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS)
				return -1;
			give(list, (struct request *)(uintptr_t)wcs[i].wr_id);
		}
		done += got;
	}
	return 0;
}

static ALWAYS_INLINE int batch_books(struct work *work, long count, uint32_t lkey)
{
	struct list *list = all_requests();
	struct ibv_send_wr *bad_wr;

	for (long posted = 0; posted < count; posted += BATCH) {
		struct ibv_send_wr *first = NULL;
		struct ibv_send_wr **link = &first;

		for (int i = 0; i < BATCH; i++) {
			struct request *request = take(list);

			if (!request)
				return -1;
			fill(request, IBV_SEND_SIGNALED, BUFFER_SIZE, lkey);
			*link = &request->wr;
			link = &request->wr.next;
		}
		if (ibv_post_send(work->qps[0], first, &bad_wr))
			return -1;
		if (give_back_batch(work->cq, list))
			return -1;
	}
	return 0;
}

int loop_c_batch_books(struct work *work, long count)
{
	return batch_books(work, count, LKEY);
}

/* With a device behind it. */
int loop_c_device_books(struct work *work, long count)
{
	return batch_books(work, count, work->lkey);
}

/* The same by calls. */

static ALWAYS_INLINE void send_by_call(struct ibv_qp_ex *qp, uint64_t wr_id, uint64_t addr, uint32_t lkey)
{
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, lkey, addr, BUFFER_SIZE);
}

int loop_c_batch_wr_written(struct work *work, long count)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(work->qps[0]);
	uint64_t buffers[BATCH];

	for (int i = 0; i < BATCH; i++)
		buffers[i] = (uintptr_t)memory[i];
	for (long posted = 0; posted < count; posted += BATCH) {
		ibv_wr_start(qp);
		for (int i = 0; i < BATCH; i++)
			send_by_call(qp, buffers[i], buffers[i], LKEY);
		if (ibv_wr_complete(qp))
			return -1;
		if (finish_batch(work->cq, buffers))
			return -1;
	}
	return 0;
}

/* Nothing can be kept: every call says all there is. */
int loop_c_batch_wr_kept(struct work *work, long count)
{
	return loop_c_batch_wr_written(work, count);
}

static ALWAYS_INLINE int batch_wr_books(struct work *work, long count, uint32_t lkey)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(work->qps[0]);
	struct list *list = all_requests();

	for (long posted = 0; posted < count; posted += BATCH) {
		ibv_wr_start(qp);
		for (int i = 0; i < BATCH; i++) {
			struct request *request = take(list);

			if (!request) {
				ibv_wr_abort(qp);
				return -1;
			}
			send_by_call(qp, (uintptr_t)request, (uintptr_t)request->buffers[0], lkey);
		}
		if (ibv_wr_complete(qp))
			return -1;
		if (give_back_batch(work->cq, list))
			return -1;
	}
	return 0;
}

int loop_c_batch_wr_books(struct work *work, long count)
{
	return batch_wr_books(work, count, LKEY);
}

/* With a device behind it, whose provider may have no calls. */
int loop_c_device_wr_books(struct work *work, long count)
{
	return ibv_qp_to_qp_ex(work->qps[0]) ? batch_wr_books(work, count, work->lkey) : -1;
}

/* A run: requests of which only the last is signalled. When that one is done, so are those before it. */

int loop_c_run_kept(struct work *work, long count)
{
	struct ibv_sge sge = { .length = BUFFER_SIZE, .lkey = LKEY };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad_wr;

	for (long i = 0; i < count; i++) {
		int last = i % RUN == RUN - 1;

		sge.addr = (uintptr_t)memory[i % BUFFERS];
		wr.wr_id = sge.addr;
		wr.send_flags = last ? IBV_SEND_SIGNALED : 0;
		if (ibv_post_send(work->qps[0], &wr, &bad_wr))
			return -1;
		if (last && !finish(work->cq))
			return -1;
	}
	return 0;
}

int loop_c_run_written(struct work *work, long count)
{
	struct ibv_send_wr *bad_wr;

	for (long i = 0; i < count; i++) {
		int last = i % RUN == RUN - 1;
		uint64_t buffer = (uintptr_t)memory[i % BUFFERS];
		struct ibv_sge sge = { .addr = buffer, .length = BUFFER_SIZE, .lkey = LKEY };
		struct ibv_send_wr wr = {
			.wr_id = buffer,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = last ? IBV_SEND_SIGNALED : 0,
		};

		if (ibv_post_send(work->qps[0], &wr, &bad_wr))
			return -1;
		if (last && !finish(work->cq))
			return -1;
	}
	return 0;
}

int loop_c_run_books(struct work *work, long count)
{
	struct list *list = all_requests();
	struct request *posted[RUN];
	struct ibv_send_wr *bad_wr;

	for (long i = 0; i < count; i += RUN) {
		for (int j = 0; j < RUN; j++) {
			struct request *request = take(list);

			if (!request)
				return -1;
			fill(request, j == RUN - 1 ? IBV_SEND_SIGNALED : 0, BUFFER_SIZE, LKEY);
			if (ibv_post_send(work->qps[0], &request->wr, &bad_wr))
				return -1;
			posted[j] = request;
		}
		if (!finish(work->cq))
			return -1;
		for (int j = 0; j < RUN; j++)
			give(list, posted[j]);
	}
	return 0;
}
