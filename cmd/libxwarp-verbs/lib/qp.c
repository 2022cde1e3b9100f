/* Queue pairs: life and state. Posting is in post.c. */
#include "objects.h"

static int check_init(const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *c = &a->cap;
	int error;

	if (a->qp_type != IBV_QPT_RC)
		return xw_refused_probe("queue pair types other than IBV_QPT_RC"); /* UCX and libfabric try UD */
	if ((error = xw_check_flags(XW_FLAGS_QP_INIT, a->comp_mask)) ||
	    (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	     (error = xw_check_flags(xw_roce() ? XW_FLAGS_QP_OPS_ROCE : XW_FLAGS_QP_OPS, a->send_ops_flags))) ||
	    (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && (error = xw_check_flags(XW_FLAGS_QP_CREATE, a->create_flags))))
		return error;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !a->send_cq || !a->recv_cq || c->max_send_wr > XW_MAX_DEPTH ||
	    c->max_recv_wr > XW_MAX_DEPTH || c->max_send_sge > XW_MAX_SGE || c->max_recv_sge > XW_MAX_SGE ||
	    c->max_inline_data > XW_MAX_INLINE)
		return EINVAL;
	return 0;
}

/* open_qp creates the queue pair in the daemon and maps its rings. */
static int open_qp(struct qp *q, const struct ibv_qp_init_attr_ex *a)
{
	REPLY(c);
	uint32_t recv_sge = a->srq ? 0 : a->cap.max_recv_sge, recvs = a->cap.max_recv_wr ? a->cap.max_recv_wr : 1;
	uint32_t pieces = a->cap.max_send_sge > recv_sge ? a->cap.max_send_sge : recv_sge;
	/* With a shared receive queue, the depth is the number of messages that may arrive at once, which the daemon
	 * chooses. */
	int error = xw_call(q->s, &c, -1, "create_qp",
			    "{\"pd\":%u,\"send_cq\":%u,\"recv_cq\":%u,\"srq\":%u,\"send_depth\":%u,\"recv_depth\":%u,\"max_sge\":%u,\"max_inline\":%u}",
			    a->pd->handle, a->send_cq->handle, a->recv_cq->handle, a->srq ? a->srq->handle : 0,
			    a->cap.max_send_wr ? a->cap.max_send_wr : 1, a->srq ? 0 : recvs, pieces ? pieces : 1, a->cap.max_inline_data);

	if (error)
		return error;
	if (!json_u32(c.result, "handle", &q->ib.handle) || !json_u32(c.result, "qp_num", &q->ib.qp_num) ||
	    q->ib.qp_num >> XW_QPN_BITS || !json_u32(c.result, "bell", &q->bell) || q->bell >= XW_MAX_QPS ||
	    !json_u32(c.result, "max_sge", &q->max_sge) || q->max_sge > XW_MAX_SGE ||
	    !json_u32(c.result, "max_inline", &q->max_inline) || q->max_inline > XW_MAX_INLINE ||
	    c.n_files != 1 || !xw_map(&q->area, xw_take_file(&c, 0)) ||
	    !xw_ring_open(&q->sq, &q->area, json_get(c.result, "send"), XW_SEND_HEAD + q->max_sge * XW_SGE_SIZE + q->max_inline) ||
	    (!a->srq && !xw_ring_open(&q->rq, &q->area, json_get(c.result, "recv"), XW_RECV_HEAD + q->max_sge * XW_SGE_SIZE)))
		return EPROTO;
	q->rq.receives = true;
	q->sq.record = xw_record_new(q->sq.slots);
	q->rq.record = a->srq ? NULL : xw_record_new(q->rq.slots);
	return q->sq.record && (a->srq || q->rq.record) ? 0 : ENOMEM;
}

static void close_qp(struct qp *q)
{
	xw_unmap(&q->area);
	free(q->sq.record);
	free(q->rq.record);
	free(q);
}

struct ibv_qp *xw_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
	int error = check_init(a);
	struct qp *q = error ? NULL : calloc(1, sizeof *q);

	if (!q)
		return xw_null(error ? error : ENOMEM);
	q->ex = xw_wr_operations;
	q->s = xw_session(context);
	if ((error = open_qp(q, a))) {
		close_qp(q);
		return xw_null(error);
	}
	pthread_mutex_init(&q->send, NULL);
	pthread_mutex_init(&q->recv, NULL);
	pthread_mutex_init(&q->ib.mutex, NULL);
	xw_events_init(&q->async);
	q->ib.context = context;
	q->ib.qp_context = a->qp_context;
	q->ib.pd = a->pd;
	q->ib.send_cq = a->send_cq;
	q->ib.recv_cq = a->recv_cq;
	q->ib.srq = a->srq;
	q->ib.state = IBV_QPS_RESET;
	q->ib.qp_type = a->qp_type;
	q->sig_all = a->sq_sig_all;
	q->allowed = XW_REMOTE_RIGHTS;
	a->cap.max_send_sge = a->cap.max_recv_sge = q->max_sge;
	a->cap.max_inline_data = q->max_inline;
	q->cap = a->cap;
	xw_did_without();
	xw_cq_add(container_of(a->send_cq, struct cq, ib), q);
	if (a->recv_cq != a->send_cq)
		xw_cq_add(container_of(a->recv_cq, struct cq, ib), q);
	GUARD(&q->s->lock);
	LINK(q->s->qps, q);
	return &q->ib;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap,
		.qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *qp = xw_create_qp_ex(pd->context, &ex);

	if (qp)
		a->cap = ex.cap;
	return qp;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) { return &container_of(qp, struct qp, ib)->ex; }

EXPORT int ibv_destroy_qp(struct ibv_qp *ib)
{
	struct qp *q = container_of(ib, struct qp, ib);

	if (xw_qp_state(ib) == IBV_QPS_RTS) /* the daemon would send RST, and the peer could lose the last data */
		xw_ask(q->s, "disconnect", "{\"handle\":%u}", ib->handle);
	int error = xw_destroy(q->s, "destroy_qp", ib->handle);
	if (error)
		return error;
	LOCKED(&q->s->lock)
		UNLINK(q->s->qps, q);
	xw_async_end(ib->context, &(struct ibv_async_event){.element.qp = ib, .event_type = IBV_EVENT_QP_FATAL});
	xw_cq_forget(container_of(ib->send_cq, struct cq, ib), ib->qp_num);
	if (ib->recv_cq != ib->send_cq)
		xw_cq_forget(container_of(ib->recv_cq, struct cq, ib), ib->qp_num);
	xw_bounce_forget(q);
	close_qp(q);
	return 0;
}

/* may reports whether ibv_modify_qp may change a state to another one. rdma_cm provides the connection parameters,
 * so INIT, RTR and RTS are only names here. */
static bool may(enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	/* From RTS: rdma_cm came first, as in the kernel's iWARP, and the state stays RTS. */
	case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT || from == IBV_QPS_RTS;
	case IBV_QPS_RTR: return from == IBV_QPS_INIT || from == IBV_QPS_RTS;
	case IBV_QPS_RTS: return from == IBV_QPS_INIT || from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	case IBV_QPS_SQD: return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	case IBV_QPS_ERR: return true;
	default: return false;
	}
}

int xw_allow(struct qp *q, unsigned rights)
{
	rights &= XW_REMOTE_RIGHTS;
	int error = rights == q->allowed ? 0 :
		    xw_ask(q->s, "modify_qp", "{\"handle\":%u,\"access\":%u}", q->ib.handle, rights);
	if (!error)
		q->allowed = rights;
	return error;
}

static void keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define KEEP(bit, field)     \
	if (mask & (bit))    \
		to->field = from->field
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
#undef KEEP
}

/* move makes the daemon close the connection for SQD, or fail it for ERR. The other states are only names. */
static int move(struct qp *q, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (from == to || q->down)
		return 0;
	if (to == IBV_QPS_SQD) /* iWARP's CLOSING, as in the drivers of the kernel */
		xw_ask(q->s, "disconnect", "{\"handle\":%u}", q->ib.handle);
	int error = to == IBV_QPS_ERR ? xw_set_state(q, "err", "") : 0;
	return q->s->dead ? 0 : error;
}

EXPORT int ibv_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask)
{
	struct qp *q = container_of(ib, struct qp, ib);
	struct ibv_qp_attr next;
	enum ibv_qp_state from, to;
	bool roce = xw_roce();
	int error = mask & IBV_QP_ACCESS_FLAGS ? xw_check_flags(XW_FLAGS_QP_ACCESS, attr->qp_access_flags) : 0;

	if (error || (!roce && (error = xw_check_flags(XW_FLAGS_QP_IWARP, (unsigned)mask))))
		return error;
	LOCKED(&ib->mutex) {
		from = ib->state;
		next = q->attr;
	}
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from) ||
	    !(roce ? xw_may_roce(from, to, attr, mask) : may(from, to)))
		return EINVAL;
	keep(&next, attr, roce ? mask : mask & (XW_INIT_MUST | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC));
	if ((mask & IBV_QP_ACCESS_FLAGS && (error = xw_allow(q, xw_rights((int)attr->qp_access_flags)))) ||
	    (error = roce ? xw_move_roce(q, from, to, &next) : move(q, from, to)))
		return error;
	GUARD(&ib->mutex);
	if (to != IBV_QPS_RESET)
		q->attr = next;
	bool stays = from == IBV_QPS_RTS && (to == IBV_QPS_INIT || to == IBV_QPS_RTR);
	if (!stays && (!q->down || to == IBV_QPS_ERR))
		xw_qp_becomes(ib, to);
	return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = container_of(ib, struct qp, ib);

	(void)mask;
	GUARD(&ib->mutex);
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = ib->state;
	attr->cap = q->cap;
	if (!xw_roce()) {
		if (ib->state == IBV_QPS_RESET) /* the kernel's iWARP has no such state */
			attr->qp_state = attr->cur_qp_state = IBV_QPS_INIT;
		attr->path_mtu = IBV_MTU_1024;
	}
	*init = (struct ibv_qp_init_attr){.qp_context = ib->qp_context, .send_cq = ib->send_cq, .recv_cq = ib->recv_cq,
					  .srq = ib->srq, .cap = q->cap, .qp_type = ib->qp_type, .sq_sig_all = q->sig_all};
	return 0;
}

/* Writes of one connection are placed as segments arrive: in order only if none is lost. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

/* find_qp requires the session's lock. */
static struct qp *find_qp(struct session *s, uint32_t handle)
{
	struct qp *q;

	for (q = s->qps; q && q->ib.handle != handle; q = q->next)
		;
	return q;
}

/* explain prints once, in style roce, why a connection ended: programs only see a status. */
static void explain(struct json event)
{
	char why[512];

	if (xw_roce() && json_text(json_get(json_get(event, "error"), "text"), why, sizeof why) && xw_first_time(__func__))
		xw_warn("a queue pair ended: %s", why);
}

static void tell(struct qp *q, enum ibv_event_type type)
{
	xw_async(xw_context(q->ib.context), &(struct ibv_async_event){.element.qp = &q->ib, .event_type = type});
}

/* xw_qp_down handles the event that a queue pair left RTS. Protocol errors become asynchronous events. A lost
 * connection does not, since rdma_cm reports it. */
void xw_qp_down(struct session *s, uint32_t handle, struct json event)
{
	struct json cause = json_get(event, "cause");
	struct qp *q;

	explain(event);
	GUARD(&s->lock);
	if (!(q = find_qp(s, handle)))
		return;
	xw_qp_fail(q);
	if (json_is(cause, "access"))
		tell(q, IBV_EVENT_QP_ACCESS_ERR);
	else if (json_is(cause, "request"))
		tell(q, IBV_EVENT_QP_REQ_ERR);
	else if (json_is(cause, "fatal"))
		tell(q, IBV_EVENT_QP_FATAL);
}

/* xw_qps_lost moves all queue pairs to ERR. Later requests are flushed. */
void xw_qps_lost(struct session *s)
{
	for (struct qp *q = s->qps; q; q = q->next)
		xw_qp_fail(q);
}

/* xw_qp_gone reports that a queue pair completed all requests that it consumed from its shared receive queue. */
void xw_qp_gone(struct session *s, uint32_t handle)
{
	struct qp *q;

	GUARD(&s->lock);
	if ((q = find_qp(s, handle)) && q->ib.srq)
		tell(q, IBV_EVENT_QP_LAST_WQE_REACHED);
}
