/*
 * A device's own provider behind the loops. A post does not return before what it posted is done, so that every poll finds
 * something. What is put in front of the provider costs some ten instructions a post.
 */
#include "work.h"

/* In src/device.rs. Nobody counts what it does. */
void wait_for_device(void);

static int (*own_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
static int (*own_complete)(struct ibv_qp_ex *qp);

static int waiting_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	int error = own_post_send(qp, wr, bad_wr);

	if (!error)
		wait_for_device();
	return error;
}

static int waiting_complete(struct ibv_qp_ex *qp)
{
	int error = own_complete(qp);

	if (!error)
		wait_for_device();
	return error;
}

/* Puts these in front of what is posted to `qp`, on whose device nobody posts anything else. */
void wait_after_posts(struct ibv_qp *qp)
{
	struct ibv_qp_ex *calls = ibv_qp_to_qp_ex(qp);

	own_post_send = qp->context->ops.post_send;
	qp->context->ops.post_send = waiting_post_send;
	if (calls) {
		own_complete = calls->wr_complete;
		calls->wr_complete = waiting_complete;
	}
}
