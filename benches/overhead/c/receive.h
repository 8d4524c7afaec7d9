/* Receives: into a queue pair, or a shared queue. */
#include "common.h"

static ALWAYS_INLINE int post_receive(struct work *work, int shared, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad_wr;

	if (shared)
		return ibv_post_srq_recv(work->srq, wr, &bad_wr);
	return ibv_post_recv(work->qps[0], wr, &bad_wr);
}

static ALWAYS_INLINE int receive_kept(struct work *work, long count, int shared)
{
	struct ibv_sge sge = { .length = BUFFER_SIZE, .lkey = LKEY };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	uint64_t buffer = (uintptr_t)memory[0];
	uint64_t received = 0;
	uint32_t length;

	for (long i = 0; i < count; i++) {
		wr.wr_id = buffer;
		sge.addr = buffer;
		if (post_receive(work, shared, &wr))
			return -1;
		buffer = finish_receive(work->cq, &length);
		if (!buffer)
			return -1;
		received += length;
	}
	return received == (uint64_t)count * BUFFER_SIZE ? 0 : -1;
}

static ALWAYS_INLINE int receive_written(struct work *work, long count, int shared)
{
	uint64_t buffer = (uintptr_t)memory[0];
	uint64_t received = 0;
	uint32_t length;

	for (long i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = buffer, .length = BUFFER_SIZE, .lkey = LKEY };
		struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 };

		if (post_receive(work, shared, &wr))
			return -1;
		buffer = finish_receive(work->cq, &length);
		if (!buffer)
			return -1;
		received += length;
	}
	return received == (uint64_t)count * BUFFER_SIZE ? 0 : -1;
}

static ALWAYS_INLINE int receive_books(struct work *work, long count, int shared)
{
	struct list *list = all_receives();
	uint64_t received = 0;
	uint32_t length;

	for (long i = 0; i < count; i++) {
		struct receive *receive = take(list);

		if (!receive)
			return -1;
		receive->sge = (struct ibv_sge){
			.addr = (uintptr_t)receive->buffer,
			.length = BUFFER_SIZE,
			.lkey = LKEY,
		};
		receive->wr = (struct ibv_recv_wr){
			.wr_id = (uintptr_t)receive,
			.sg_list = &receive->sge,
			.num_sge = 1,
		};
		if (post_receive(work, shared, &receive->wr))
			return -1;
		receive = (struct receive *)(uintptr_t)finish_receive(work->cq, &length);
		if (!receive)
			return -1;
		received += length;
		give(list, receive);
	}
	return received == (uint64_t)count * BUFFER_SIZE ? 0 : -1;
}

int loop_c_receive_kept(struct work *work, long count)
{
	return receive_kept(work, count, 0);
}

int loop_c_receive_written(struct work *work, long count)
{
	return receive_written(work, count, 0);
}

int loop_c_receive_books(struct work *work, long count)
{
	return receive_books(work, count, 0);
}

int loop_c_shared_kept(struct work *work, long count)
{
	return receive_kept(work, count, 1);
}

int loop_c_shared_written(struct work *work, long count)
{
	return receive_written(work, count, 1);
}

int loop_c_shared_books(struct work *work, long count)
{
	return receive_books(work, count, 1);
}
