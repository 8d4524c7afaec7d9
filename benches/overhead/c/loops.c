/*
 * Post and poll as a C program writes it, in three ways:
 *
 * - kept: one request is kept and two of its fields are changed;
 * - written: the whole request is written each time;
 * - books: written, with a free list of requests, whose address is the wr_id.
 *
 * Each loop posts one request (or one batch, or one run) and polls until it is done, `count` requests in all. The buffer
 * comes back with the completion, as the wr_id. A loop returns 0, or -1 when something failed.
 */
#include "send.h"
#include "receive.h"
#include "several.h"

/* Has the device know the loops' memory. Returns null on failure. */
struct ibv_mr *register_memory(struct ibv_pd *pd)
{
	return ibv_reg_mr(pd, memory, sizeof(memory), 0);
}
