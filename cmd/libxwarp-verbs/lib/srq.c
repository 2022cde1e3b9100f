/* Shared receive queues. Posting is in post.c. */
#include "objects.h"

static int open_srq(struct srq *q, uint32_t depth, uint32_t pieces)
{
	REPLY(c);
	int error = xw_call(q->s, &c, -1, "create_srq", "{\"pd\":%u,\"depth\":%u,\"max_sge\":%u}", q->ib.pd->handle, depth, pieces);

	if (error)
		return error;
	if (!json_u32(c.result, "handle", &q->ib.handle) || !json_u32(c.result, "bell", &q->bell) ||
	    !json_u32(c.result, "max_sge", &q->max_sge) || q->bell >= XW_MAX_QPS || q->max_sge > XW_MAX_SGE ||
	    c.n_files != 1 || !xw_map(&q->area, xw_take_file(&c, 0)) ||
	    !xw_ring_open(&q->rq, &q->area, json_get(c.result, "recv"), XW_RECV_HEAD + q->max_sge * XW_SGE_SIZE))
		return EPROTO;
	q->depth = depth;
	return 0;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_attr *n = &a->attr;

	if (n->max_wr < 1 || n->max_wr > XW_MAX_DEPTH || n->max_sge > XW_MAX_SGE)
		return xw_null(EINVAL);
	struct srq *q = calloc(1, sizeof *q);
	if (!q)
		return xw_null(ENOMEM);
	q->s = xw_session(pd->context);
	q->ib.context = pd->context;
	q->ib.srq_context = a->srq_context;
	q->ib.pd = pd;
	xw_events_init(&q->async);
	pthread_mutex_init(&q->post, NULL);
	int error = open_srq(q, n->max_wr, n->max_sge ? n->max_sge : 1);
	if (error) {
		xw_unmap(&q->area);
		free(q);
		return xw_null(error);
	}
	n->max_sge = q->max_sge;
	GUARD(&q->s->lock);
	LINK(q->s->srqs, q);
	return &q->ib;
}

struct ibv_srq *xw_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *a)
{
	(void)context, (void)a; /* basic queues are created by ibv_create_srq */
	return xw_null(xw_refused("shared receive queues for XRC or tag matching"));
}

struct ibv_xrcd *xw_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *a)
{
	(void)context, (void)a;
	return xw_null(xw_refused("XRC domains"));
}

EXPORT int ibv_modify_srq(struct ibv_srq *ib, struct ibv_srq_attr *attr, int mask)
{
	struct srq *q = container_of(ib, struct srq, ib);
	int error = xw_check_flags(XW_FLAGS_SRQ, (unsigned)mask);

	if (error)
		return error;
	if (mask & IBV_SRQ_MAX_WR && attr->max_wr > q->depth)
		return xw_refused("resizing shared receive queues");
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > q->depth)
		return EINVAL;
	return xw_ask(q->s, "modify_srq", "{\"handle\":%u,\"limit\":%u}", ib->handle, attr->srq_limit);
}

EXPORT int ibv_query_srq(struct ibv_srq *ib, struct ibv_srq_attr *attr)
{
	struct srq *q = container_of(ib, struct srq, ib);
	uint32_t limit;
	REPLY(c);
	int error = xw_call(q->s, &c, -1, "query_srq", "{\"handle\":%u}", ib->handle);

	if (error)
		return error;
	if (!json_u32(c.result, "limit", &limit))
		return EPROTO;
	*attr = (struct ibv_srq_attr){.max_wr = q->depth, .max_sge = q->max_sge, .srq_limit = limit};
	return 0;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *ib)
{
	struct srq *q = container_of(ib, struct srq, ib);
	int error = xw_destroy(q->s, "destroy_srq", ib->handle);

	if (error)
		return error;
	LOCKED(&q->s->lock)
		UNLINK(q->s->srqs, q);
	xw_async_end(ib->context, &(struct ibv_async_event){.element.srq = ib, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
	xw_bounce_forget(q);
	xw_unmap(&q->area);
	free(q);
	return 0;
}

/* xw_srq_limit handles the event that fewer receives are left than the limit. */
void xw_srq_limit(struct session *s, uint32_t handle)
{
	struct srq *q;

	GUARD(&s->lock);
	for (q = s->srqs; q && q->ib.handle != handle; q = q->next)
		;
	if (q)
		xw_async(xw_context(q->ib.context),
			 &(struct ibv_async_event){.element.srq = &q->ib, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
}
