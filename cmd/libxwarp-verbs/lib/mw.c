/* Memory windows. Work requests bind them (see post.c). Only the peer of the queue pair that bound a window can
 * access it. */
#include "objects.h"

struct ibv_mw *xw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;
	REPLY(c);

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return xw_null(EINVAL);
	if (!(mw = calloc(1, sizeof *mw)))
		return xw_null(ENOMEM);
	int error = xw_call(xw_session(pd->context), &c, -1, "alloc_mw", "{\"pd\":%u}", pd->handle);
	if (!error && (!json_u32(c.result, "handle", &mw->handle) || !json_u32(c.result, "stag", &mw->rkey)))
		error = EPROTO;
	if (error) {
		free(mw);
		return xw_null(error);
	}
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	return mw;
}

int xw_dealloc_mw(struct ibv_mw *mw)
{
	int error = xw_destroy(xw_session(mw->context), "dealloc_mw", mw->handle);

	if (!error)
		free(mw);
	return error;
}

/* xw_bind_mw binds windows of type 1. Each binding has another key, which the library chooses. */
int xw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags,
		.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info},
	};

	return xw_post_send(qp, &wr, &bad);
}
