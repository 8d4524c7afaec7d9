/* Sends: of one piece, of two, inline, and over several queue pairs in turn. */
#include "common.h"

static ALWAYS_INLINE int kept(struct work *work, long count, unsigned int flags, uint32_t length, long pairs)
{
	struct ibv_sge sge = { .length = length, .lkey = LKEY };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | flags,
	};
	struct ibv_send_wr *bad_wr;
	uint64_t buffer = (uintptr_t)memory[0];

	for (long i = 0; i < count; i++) {
		wr.wr_id = buffer;
		sge.addr = buffer;
		if (ibv_post_send(work->qps[i % pairs], &wr, &bad_wr))
			return -1;
		buffer = finish(work->cq);
		if (!buffer)
			return -1;
	}
	return 0;
}

static ALWAYS_INLINE int written(struct work *work, long count, unsigned int flags, uint32_t length, long pairs)
{
	struct ibv_send_wr *bad_wr;
	uint64_t buffer = (uintptr_t)memory[0];

	for (long i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = buffer, .length = length, .lkey = LKEY };
		struct ibv_send_wr wr = {
			.wr_id = buffer,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | flags,
		};

		if (ibv_post_send(work->qps[i % pairs], &wr, &bad_wr))
			return -1;
		buffer = finish(work->cq);
		if (!buffer)
			return -1;
	}
	return 0;
}

/* Fills a request of the free list in. */
static ALWAYS_INLINE void fill(struct request *request, unsigned int flags, uint32_t length, uint32_t lkey)
{
	request->sges[0] = (struct ibv_sge){
		.addr = (uintptr_t)request->buffers[0],
		.length = length,
		.lkey = lkey,
	};
	request->wr = (struct ibv_send_wr){
		.wr_id = (uintptr_t)request,
		.sg_list = request->sges,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = flags,
	};
}

static ALWAYS_INLINE int books(struct work *work, long count, unsigned int flags, uint32_t length, long pairs)
{
	struct list *list = all_requests();
	struct ibv_send_wr *bad_wr;

	for (long i = 0; i < count; i++) {
		struct request *request = take(list);

		if (!request)
			return -1;
		fill(request, IBV_SEND_SIGNALED | flags, length, LKEY);
		if (ibv_post_send(work->qps[i % pairs], &request->wr, &bad_wr))
			return -1;
		request = (struct request *)(uintptr_t)finish(work->cq);
		if (!request)
			return -1;
		give(list, request);
	}
	return 0;
}

int loop_c_send_kept(struct work *work, long count)
{
	return kept(work, count, 0, BUFFER_SIZE, 1);
}

int loop_c_send_written(struct work *work, long count)
{
	return written(work, count, 0, BUFFER_SIZE, 1);
}

int loop_c_send_books(struct work *work, long count)
{
	return books(work, count, 0, BUFFER_SIZE, 1);
}

int loop_c_inline_kept(struct work *work, long count)
{
	return kept(work, count, IBV_SEND_INLINE, INLINE_SIZE, 1);
}

int loop_c_inline_written(struct work *work, long count)
{
	return written(work, count, IBV_SEND_INLINE, INLINE_SIZE, 1);
}

int loop_c_inline_books(struct work *work, long count)
{
	return books(work, count, IBV_SEND_INLINE, INLINE_SIZE, 1);
}

int loop_c_pairs_kept(struct work *work, long count)
{
	return kept(work, count, 0, BUFFER_SIZE, PAIRS);
}

int loop_c_pairs_written(struct work *work, long count)
{
	return written(work, count, 0, BUFFER_SIZE, PAIRS);
}

int loop_c_pairs_books(struct work *work, long count)
{
	return books(work, count, 0, BUFFER_SIZE, PAIRS);
}

/* Two pieces. */

int loop_c_pieces_kept(struct work *work, long count)
{
	struct ibv_sge sges[2] = {
		{ .length = BUFFER_SIZE / 2, .lkey = LKEY },
		{ .length = BUFFER_SIZE / 2, .lkey = LKEY },
	};
	struct ibv_send_wr wr = {
		.sg_list = sges,
		.num_sge = 2,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad_wr;
	uint64_t buffer = (uintptr_t)memory[0];

	for (long i = 0; i < count; i++) {
		wr.wr_id = buffer;
		sges[0].addr = buffer;
		sges[1].addr = buffer + BUFFER_SIZE / 2;
		if (ibv_post_send(work->qps[0], &wr, &bad_wr))
			return -1;
		buffer = finish(work->cq);
		if (!buffer)
			return -1;
	}
	return 0;
}

int loop_c_pieces_written(struct work *work, long count)
{
	struct ibv_send_wr *bad_wr;
	uint64_t buffer = (uintptr_t)memory[0];

	for (long i = 0; i < count; i++) {
		struct ibv_sge sges[2] = {
			{ .addr = buffer, .length = BUFFER_SIZE / 2, .lkey = LKEY },
			{ .addr = buffer + BUFFER_SIZE / 2, .length = BUFFER_SIZE / 2, .lkey = LKEY },
		};
		struct ibv_send_wr wr = {
			.wr_id = buffer,
			.sg_list = sges,
			.num_sge = 2,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};

		if (ibv_post_send(work->qps[0], &wr, &bad_wr))
			return -1;
		buffer = finish(work->cq);
		if (!buffer)
			return -1;
	}
	return 0;
}

int loop_c_pieces_books(struct work *work, long count)
{
	struct list *list = all_requests();
	struct ibv_send_wr *bad_wr;

	for (long i = 0; i < count; i++) {
		struct request *request = take(list);

		if (!request)
			return -1;
		fill(request, IBV_SEND_SIGNALED, BUFFER_SIZE / 2, LKEY);
		request->sges[1] = (struct ibv_sge){
			.addr = (uintptr_t)request->buffers[1],
			.length = BUFFER_SIZE / 2,
			.lkey = LKEY,
		};
		request->wr.num_sge = 2;
		if (ibv_post_send(work->qps[0], &request->wr, &bad_wr))
			return -1;
		request = (struct request *)(uintptr_t)finish(work->cq);
		if (!request)
			return -1;
		give(list, request);
	}
	return 0;
}
