/* What the loops share: the polling, and the free lists of the third way. */
#ifndef OVERHEAD_COMMON_H
#define OVERHEAD_COMMON_H

#include <stddef.h>

#include "work.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

static char memory[BUFFERS][BUFFER_SIZE];

/* What a registration would have given. */
static const uint32_t LKEY = 1;

/* In src/polls.rs. */
void empty_poll(void);

/* Polls until there is something. Returns how many there are, below 0 on failure. */
static ALWAYS_INLINE int poll(struct ibv_cq *cq, int room, struct ibv_wc *wcs)
{
	int got;

	while ((got = ibv_poll_cq(cq, room, wcs)) == 0)
		empty_poll();
	return got;
}

/* Polls for one completion and gives its wr_id; 0 on failure. */
static ALWAYS_INLINE uint64_t finish(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (poll(cq, 1, &wc) < 0 || wc.status != IBV_WC_SUCCESS)
		return 0;
	return wc.wr_id;
}

/* The same for a receive, whose length is looked at. */
static ALWAYS_INLINE uint64_t finish_receive(struct ibv_cq *cq, uint32_t *length)
{
	struct ibv_wc wc;

	if (poll(cq, 1, &wc) < 0 || wc.status != IBV_WC_SUCCESS)
		return 0;
	*length = wc.byte_len;
	return wc.wr_id;
}

/* A request with what it needs, as a program keeps it in a free list. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sges[2];
	char *buffers[2];
};

struct receive {
	struct ibv_recv_wr wr;
	struct ibv_sge sge;
	char *buffer;
};

static struct request requests[BUFFERS];
static struct receive receives[BUFFERS];

/* As a program keeps it beside its queue pairs: not a local variable. */
struct list {
	void *entries[BUFFERS];
	unsigned int count;
};

struct list free_requests;
struct list free_receives;

static struct list *all_requests(void)
{
	struct list *list = &free_requests;

	list->count = 0;
	for (int i = 0; i < BUFFERS; i++) {
		requests[i].buffers[0] = memory[i];
		requests[i].buffers[1] = memory[i] + BUFFER_SIZE / 2;
		list->entries[list->count++] = &requests[i];
	}
	return list;
}

static struct list *all_receives(void)
{
	struct list *list = &free_receives;

	list->count = 0;
	for (int i = 0; i < BUFFERS; i++) {
		receives[i].buffer = memory[i];
		list->entries[list->count++] = &receives[i];
	}
	return list;
}

static ALWAYS_INLINE void *take(struct list *list)
{
	return list->count ? list->entries[--list->count] : NULL;
}

static ALWAYS_INLINE void give(struct list *list, void *entry)
{
	list->entries[list->count++] = entry;
}

#endif
