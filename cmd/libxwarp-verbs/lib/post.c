/* Posting: ibv_post_send, ibv_post_recv and ibv_wr_*. They touch shared memory only, and an eventfd when the daemon sleeps. */
#include "objects.h"

/* ring_bell notifies the daemon of entries in a queue's rings. The caller must have stored the tail with sequential
 * consistency. */
static void ring_bell(struct session *s, uint32_t bell)
{
	_Atomic uint32_t *bells = xw_word(s->bell.mem, XW_DOORBELL_BELLS + bell / 32 * 4);
	_Atomic uint32_t *sleeps = xw_word(s->bell.mem, 0);
	uint32_t bit = 1U << bell % 32;
	uint64_t one = 1;

	if (!(atomic_load(bells) & bit))
		atomic_fetch_or(bells, bit);
	if (atomic_load(sleeps) != 0 && atomic_exchange(sleeps, 0) != 0)
		(void)!write(s->ring, &one, sizeof one);
}

static void publish(struct session *s, uint32_t bell, struct ring *r, uint32_t n)
{
	if (n == 0)
		return;
	if (r->record)
		xw_record_post(r, n);
	r->own += n;
	atomic_store(xw_word(r->mem, XW_RING_TAIL), r->own);
	ring_bell(s, bell);
	xw_reset_empty_polls();
}

/* wake wakes threads that wait for completions if the daemon is gone: then the library itself completes requests. */
static void wake(struct session *s, struct ibv_cq *cq)
{
	if (s->dead)
		xw_cq_wake(container_of(cq, struct cq, ib));
}

/* next_slot returns the slot that is ahead slots after the last published one. It returns NULL if the ring is full
 * or the daemon's index is invalid. */
static uint8_t *next_slot(struct ring *r, uint32_t ahead)
{
	uint32_t used = r->own + ahead - atomic_load_explicit(xw_word(r->mem, XW_RING_HEAD), memory_order_acquire);

	return used < r->slots ? xw_slot(r, r->own + ahead) : NULL;
}

static void put_sge(uint8_t *p, uint32_t lkey, uint32_t length, uint64_t addr)
{
	put32(p, lkey);
	put32(p + XW_SGE_LEN, length);
	put64(p + XW_SGE_TO, addr);
}

static void put_list(uint8_t *p, const struct ibv_sge *list, int n)
{
	for (int i = 0; i < n; i++, p += XW_SGE_SIZE)
		put_sge(p, list[i].lkey, list[i].length, list[i].addr);
}

static void put_remote(uint8_t *b, uint32_t rkey, uint64_t addr)
{
	put32(b + XW_SEND_REMOTE_STAG, rkey);
	put64(b + XW_SEND_REMOTE_TO, addr);
}

/* inline_data copies the bytes of the SGEs into the slot. It returns false if there are too many bytes. */
static bool inline_data(const struct qp *q, uint8_t *b, const struct ibv_sge *list, int n)
{
	uint8_t *to = b + XW_SEND_HEAD + (size_t)q->max_sge * XW_SGE_SIZE;
	uint32_t length = 0;

	for (int i = 0; i < n; i++) {
		if (list[i].length > q->max_inline - length)
			return false;
		memcpy(to + length, (void *)(uintptr_t)list[i].addr, list[i].length);
		length += list[i].length;
	}
	uint16_t bytes = (uint16_t)length;
	memcpy(b + XW_SEND_INLINE, &bytes, sizeof bytes);
	return true;
}

/* put_bind fills the rest of a slot for binding a window. It returns 0 or errno. */
static int put_bind(uint8_t *b, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	int error = xw_check_flags(XW_FLAGS_WINDOW, info->mw_access_flags);

	if (error)
		return error;
	put_remote(b, rkey, info->addr);
	put32(b + XW_SEND_REGION, info->mr ? info->mr->rkey : 0);
	put64(b + XW_SEND_DATA, info->length);
	b[XW_SEND_ACCESS] = (uint8_t)(xw_rights((int)info->mw_access_flags) & XW_REMOTE_RIGHTS);
	if (info->mw_access_flags & IBV_ACCESS_ZERO_BASED)
		b[XW_SEND_FLAGS] |= XW_WR_ZERO_BASED;
	mw->rkey = rkey;
	return 0;
}

/* put_send fills a slot for the work request wr. It returns 0 or errno. */
static int put_send(const struct qp *q, uint8_t *b, const struct ibv_send_wr *wr)
{
	static const int ops[] = {
		[IBV_WR_RDMA_WRITE] = XW_OP_WRITE, [IBV_WR_SEND] = XW_OP_SEND, [IBV_WR_RDMA_READ] = XW_OP_READ,
		[IBV_WR_ATOMIC_CMP_AND_SWP] = XW_OP_CMP_SWAP, [IBV_WR_ATOMIC_FETCH_AND_ADD] = XW_OP_FETCH_ADD,
		[IBV_WR_LOCAL_INV] = XW_OP_LOCAL_INV, [IBV_WR_SEND_WITH_INV] = XW_OP_SEND_INV,
		[IBV_WR_RDMA_WRITE_WITH_IMM] = XW_OP_WRITE_IMM, [IBV_WR_SEND_WITH_IMM] = XW_OP_SEND_IMM,
		[IBV_WR_BIND_MW] = XW_OP_BIND_MW,
	};
	bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_IMM;
	unsigned op = wr->opcode;
	int error = xw_check_flags(XW_FLAGS_SEND, wr->send_flags);

	if (error)
		return error;
	if (op == IBV_WR_SEND_WITH_IMM && !xw_roce())
		return xw_refused("Send with immediate data (RFC 7306 has it only for Writes; use --style roce)");
	if (op >= sizeof ops / sizeof *ops)
		return xw_refused("this opcode of ibv_post_send");
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge)
		return EINVAL;
	/* Each opcode that can be solicited is followed by its solicited variant. */
	bool send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_INV;
	memset(b, 0, XW_SEND_HEAD);
	put64(b + XW_SLOT_ID, wr->wr_id);
	b[XW_SEND_OP] = (uint8_t)(ops[op] + ((send || imm) && wr->send_flags & IBV_SEND_SOLICITED));
	b[XW_SEND_FLAGS] = (uint8_t)((q->sig_all || wr->send_flags & IBV_SEND_SIGNALED ? XW_WR_SIGNALED : 0) |
				     (wr->send_flags & IBV_SEND_FENCE ? XW_WR_FENCE : 0));
	if (op == IBV_WR_BIND_MW)
		return put_bind(b, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	if (imm)
		put32(b + XW_SEND_IMM, wr->imm_data); /* the first 4 bytes of 8 (RFC 7306, 6.1) */
	if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV)
		put32(b + XW_SEND_INVALIDATE, wr->invalidate_rkey);
	else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		put_remote(b, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr);
		put64(b + XW_SEND_DATA, wr->wr.atomic.compare_add);
	} else if (op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		put_remote(b, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr);
		put64(b + XW_SEND_DATA, wr->wr.atomic.swap);
		put64(b + XW_SEND_MASK, UINT64_MAX);
		put64(b + XW_SEND_COMPARE, wr->wr.atomic.compare_add);
		put64(b + XW_SEND_COMPARE_MASK, UINT64_MAX);
	} else if (op != IBV_WR_SEND && op != IBV_WR_SEND_WITH_IMM)
		put_remote(b, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	if (wr->send_flags & IBV_SEND_INLINE && (send || op == IBV_WR_RDMA_WRITE || imm))
		return inline_data(q, b, wr->sg_list, wr->num_sge) ? 0 : EINVAL;
	b[XW_SEND_PIECES] = (uint8_t)wr->num_sge;
	put_list(b + XW_SEND_HEAD, wr->sg_list, wr->num_sge);
	return 0;
}

_Static_assert(XW_OP_SEND_SE == XW_OP_SEND + 1 && XW_OP_SEND_SE_INV == XW_OP_SEND_INV + 1 &&
			       XW_OP_WRITE_IMM_SE == XW_OP_WRITE_IMM + 1 && XW_OP_SEND_IMM_SE == XW_OP_SEND_IMM + 1,
	       "solicited ops follow");

static bool may_send(const struct qp *q)
{
	enum ibv_qp_state state = xw_qp_state(&q->ib);

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

int xw_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = container_of(ib, struct qp, ib);
	uint32_t n = 0;
	int error = 0;

	LOCKED(&q->send) {
		for (; wr; wr = wr->next, n++) {
			uint8_t *b = may_send(q) ? next_slot(&q->sq, n) : NULL;
			error = b ? put_send(q, b, wr) : may_send(q) ? ENOMEM : EINVAL;
			if (!error && xw_any_bounce())
				error = xw_bounce_send(q, b);
			if (error) {
				*bad = wr;
				break;
			}
		}
		publish(q->s, q->bell, &q->sq, n);
	}
	wake(q->s, ib->send_cq);
	return error;
}

/* put_recv fills the slot b, unless that is NULL. owner is the queue. It returns 0 or errno. */
static int put_recv(const void *owner, uint8_t *b, uint32_t max_sge, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return EINVAL;
	if (!b)
		return ENOMEM;
	put64(b + XW_SLOT_ID, wr->wr_id);
	put64(b + XW_RECV_PIECES, 0);
	b[XW_RECV_PIECES] = (uint8_t)wr->num_sge;
	put_list(b + XW_RECV_HEAD, wr->sg_list, wr->num_sge);
	return xw_any_bounce() ? xw_bounce_recv(owner, b) : 0;
}

static int post_recvs(const void *owner, struct session *s, uint32_t bell, struct ring *r, uint32_t max_sge, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad)
{
	uint32_t n = 0;
	int error = 0;

	for (; wr && !(error = put_recv(owner, next_slot(r, n), max_sge, wr)); wr = wr->next)
		n++;
	if (error)
		*bad = wr;
	publish(s, bell, r, n);
	return error;
}

int xw_post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = container_of(ib, struct qp, ib);
	int error = 0;

	if (xw_qp_state(ib) == IBV_QPS_RESET || ib->srq) {
		*bad = wr;
		return EINVAL;
	}
	LOCKED(&q->recv)
		error = post_recvs(q, q->s, q->bell, &q->rq, q->max_sge, wr, bad);
	wake(q->s, ib->recv_cq);
	return error;
}

int xw_post_srq_recv(struct ibv_srq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *q = container_of(ib, struct srq, ib);

	GUARD(&q->post);
	return post_recvs(q, q->s, q->bell, &q->rq, q->max_sge, wr, bad);
}

/* ibv_wr_*: wr_start locks the send queue; requests are built in its slots, and wr_complete publishes them together. */

static struct qp *of(struct ibv_qp_ex *ex) { return container_of(ex, struct qp, ex); }

static void wr_start(struct ibv_qp_ex *ex)
{
	struct qp *q = of(ex);

	pthread_mutex_lock(&q->send);
	q->built = 0;
	q->built_error = may_send(q) ? 0 : EINVAL;
	q->slot = NULL;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct qp *q = of(ex);
	int error = q->built_error;

	for (uint32_t i = 0; !error && i < q->built && xw_any_bounce(); i++)
		error = xw_bounce_send(q, xw_slot(&q->sq, q->sq.own + i));
	if (!error)
		publish(q->s, q->bell, &q->sq, q->built);
	pthread_mutex_unlock(&q->send);
	wake(q->s, q->ib.send_cq);
	return error;
}

static void wr_abort(struct ibv_qp_ex *ex) { pthread_mutex_unlock(&of(ex)->send); }

/* spoil notes the first error, for wr_complete. */
static void spoil(struct ibv_qp_ex *ex, int error)
{
	if (!of(ex)->built_error)
		of(ex)->built_error = error;
}

/* add builds a request, without data so far, in the next slot. */
static void add(struct ibv_qp_ex *ex, struct ibv_send_wr wr)
{
	struct qp *q = of(ex);

	wr.wr_id = ex->wr_id;
	wr.send_flags = ex->wr_flags;
	q->slot = q->built_error ? NULL : next_slot(&q->sq, q->built);
	spoil(ex, q->slot ? put_send(q, q->slot, &wr) : ENOMEM);
	q->built++;
}

/* ADDS defines a function that builds a request with these fields of ibv_send_wr. */
#define ADDS(name, params, ...) \
	static void wr_##name params { add(ex, (struct ibv_send_wr){__VA_ARGS__}); }

ADDS(send, (struct ibv_qp_ex *ex), .opcode = IBV_WR_SEND)
ADDS(send_imm, (struct ibv_qp_ex *ex, __be32 imm), .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = imm)
ADDS(send_inv, (struct ibv_qp_ex *ex, uint32_t rkey), .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey)
ADDS(local_inv, (struct ibv_qp_ex *ex, uint32_t rkey), .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey)
ADDS(rdma_read, (struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr), .opcode = IBV_WR_RDMA_READ, .wr.rdma = {addr, rkey})
ADDS(rdma_write, (struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr), .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {addr, rkey})
ADDS(rdma_write_imm, (struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm),
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = imm, .wr.rdma = {addr, rkey})
ADDS(atomic_cmp_swp, (struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap),
     .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .wr.atomic = {addr, compare, swap, rkey})
ADDS(atomic_fetch_add, (struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t n),
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic = {addr, n, 0, rkey})
ADDS(bind_mw, (struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info),
     .opcode = IBV_WR_BIND_MW, .bind_mw = {mw, rkey, *info})

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct qp *q = of(ex);

	if (n > q->max_sge) {
		spoil(ex, EINVAL);
	} else if (q->slot) {
		q->slot[XW_SEND_PIECES] = (uint8_t)n;
		put_list(q->slot + XW_SEND_HEAD, list, (int)n);
	}
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	wr_set_sge_list(ex, 1, &(struct ibv_sge){.addr = addr, .length = length, .lkey = lkey});
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct qp *q = of(ex);
	struct ibv_sge sge[XW_MAX_SGE];

	if (n > XW_MAX_SGE) {
		spoil(ex, EINVAL);
		return;
	}
	for (size_t i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)list[i].addr, .length = (uint32_t)list[i].length};
	if (q->slot && !inline_data(q, q->slot, sge, (int)n))
		spoil(ex, EINVAL);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	wr_set_inline_data_list(ex, 1, &(struct ibv_data_buf){addr, length});
}

const struct ibv_qp_ex xw_wr_operations = {
	.wr_start = wr_start, .wr_complete = wr_complete, .wr_abort = wr_abort, .wr_send = wr_send, .wr_send_imm = wr_send_imm,
	.wr_send_inv = wr_send_inv, .wr_local_inv = wr_local_inv, .wr_bind_mw = wr_bind_mw, .wr_rdma_read = wr_rdma_read,
	.wr_rdma_write = wr_rdma_write, .wr_rdma_write_imm = wr_rdma_write_imm, .wr_atomic_cmp_swp = wr_atomic_cmp_swp,
	.wr_atomic_fetch_add = wr_atomic_fetch_add, .wr_set_sge = wr_set_sge, .wr_set_sge_list = wr_set_sge_list,
	.wr_set_inline_data = wr_set_inline_data, .wr_set_inline_data_list = wr_set_inline_data_list,
};
