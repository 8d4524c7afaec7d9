/*
 * A provider that does nothing: a post remembers the request and counts it as done, a poll hands out what was
 * remembered. All is kept per completion queue, as a real provider would have to.
 */
#include <errno.h>

#include "work.h"

enum { QUEUES = 4, ENTRIES = 256 };

struct entry {
	uint64_t wr_id;
	uint32_t qp_num;
	uint32_t byte_len;
	enum ibv_wc_opcode opcode;
};

struct queue {
	struct ibv_cq *cq;
	uint32_t head;
	uint32_t tail;
	struct entry entries[ENTRIES];
};

static struct queue queues[QUEUES];

static struct queue *queue_of(struct ibv_cq *cq)
{
	struct queue *queue = queues;

	while (queue->cq != cq)
		queue++;
	return queue;
}

static int full(const struct queue *queue)
{
	return queue->tail - queue->head == ENTRIES;
}

static void done(struct queue *queue, uint64_t wr_id, uint32_t qp_num, uint32_t byte_len,
		 enum ibv_wc_opcode opcode)
{
	struct entry *entry = &queue->entries[queue->tail++ % ENTRIES];

	entry->wr_id = wr_id;
	entry->qp_num = qp_num;
	entry->byte_len = byte_len;
	entry->opcode = opcode;
}

int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct queue *queue = queue_of(qp->send_cq);

	for (; wr; wr = wr->next) {
		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		if (full(queue)) {
			*bad_wr = wr;
			return ENOMEM;
		}
		done(queue, wr->wr_id, qp->qp_num, 0, IBV_WC_SEND);
	}
	return 0;
}

/* The same by calls. As a real provider, the operation writes what it is told, and the data goes behind it. */
static struct {
	struct queue *queue;
	uint32_t lkey;
	uint64_t addr;
	uint32_t length;
	int error;
} built;

static void null_wr_start(struct ibv_qp_ex *qp)
{
	built.queue = queue_of(qp->qp_base.send_cq);
	built.error = 0;
}

static void null_wr_send(struct ibv_qp_ex *qp)
{
	struct queue *queue = built.queue;

	if (!(qp->wr_flags & IBV_SEND_SIGNALED))
		return;
	if (full(queue)) {
		built.error = ENOMEM;
		return;
	}
	done(queue, qp->wr_id, qp->qp_base.qp_num, 0, IBV_WC_SEND);
}

static void null_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	(void)qp;
	built.lkey = lkey;
	built.addr = addr;
	built.length = length;
}

static int null_wr_complete(struct ibv_qp_ex *qp)
{
	(void)qp;
	return built.error;
}

/* Puts these behind what is posted by calls to `qp`, which was made for them. */
void null_calls(struct ibv_qp *qp)
{
	struct ibv_qp_ex *calls = ibv_qp_to_qp_ex(qp);

	calls->wr_start = null_wr_start;
	calls->wr_send = null_wr_send;
	calls->wr_set_sge = null_wr_set_sge;
	calls->wr_complete = null_wr_complete;
}

static int receive(struct queue *queue, uint32_t qp_num, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		if (full(queue)) {
			*bad_wr = wr;
			return ENOMEM;
		}
		done(queue, wr->wr_id, qp_num, wr->sg_list->length, IBV_WC_RECV);
	}
	return 0;
}

int null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return receive(queue_of(qp->recv_cq), qp->qp_num, wr, bad_wr);
}

/* The queue pair that takes whatever is posted to a shared receive queue. */
static struct ibv_qp *taker;

int null_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)srq;
	return receive(queue_of(taker->recv_cq), taker->qp_num, wr, bad_wr);
}

int null_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	struct queue *queue = queue_of(cq);
	int filled = 0;

	while (filled < num_entries && queue->head != queue->tail) {
		struct entry *entry = &queue->entries[queue->head++ % ENTRIES];

		wc->wr_id = entry->wr_id;
		wc->status = IBV_WC_SUCCESS;
		wc->opcode = entry->opcode;
		wc->byte_len = entry->byte_len;
		wc->qp_num = entry->qp_num;
		wc->wc_flags = 0;
		wc++;
		filled++;
	}
	return filled;
}

/* Serves the completion queue of `qp`, which takes what is posted to a shared receive queue. */
void null_start(struct ibv_qp *qp)
{
	queues[0].cq = qp->recv_cq;
	taker = qp;
}
