/* Outstanding work requests, which complete with IBV_WC_WR_FLUSH_ERR when the daemon is gone, because programs count
 * completions.
 *
 * Each work queue has a record of its posted requests, at the indexes of its ring. Polling a completion retires its
 * request and all earlier ones. The daemon removes entries from a ring before they complete, so the record is longer
 * than the ring. Shared receive queues have no record, since the library does not know which receives a queue pair
 * consumed; their receives are not flushed. */
#include "objects.h"

struct posted {
	_Atomic uint64_t id;
	_Atomic uint32_t kind; /* opcode and flags of the slot */
};

/* record holds the requests posted to a queue. The lock of the completion queue guards retired. */
struct record {
	_Atomic uint32_t end; /* index of the next request */
	uint32_t retired;     /* index of the oldest outstanding request */
	uint32_t mask;
	struct posted at[];
};

/* FACTOR is the length of a record in rings: one for the ring, one for the daemon's queue, and one for posting,
 * rounded up to a power of two. */
#define FACTOR 4

static uint8_t op_of(uint32_t kind) { return (uint8_t)kind; }
static uint8_t flags_of(uint32_t kind) { return (uint8_t)(kind >> 8); }

struct record *xw_record_new(uint32_t slots)
{
	struct record *r = calloc(1, sizeof *r + (size_t)slots * FACTOR * sizeof *r->at);

	if (r)
		r->mask = slots * FACTOR - 1;
	return r;
}

/* xw_record_post records the next n slots to publish. The lock of the poster must be held. */
void xw_record_post(struct ring *r, uint32_t n)
{
	struct record *k = r->record;

	for (uint32_t i = r->own; i != r->own + n; i++) {
		const uint8_t *slot = xw_slot(r, i);
		uint8_t op = r->receives ? (uint8_t)XW_OP_RECV : slot[XW_SEND_OP];
		atomic_store_explicit(&k->at[i & k->mask].id, get64(slot + XW_SLOT_ID), memory_order_relaxed);
		atomic_store_explicit(&k->at[i & k->mask].kind, op | (uint32_t)slot[XW_SEND_FLAGS] << 8, memory_order_relaxed);
	}
	atomic_store_explicit(&k->end, r->own + n, memory_order_release);
}

_Static_assert(XW_SEND_FLAGS == XW_RECV_FLAGS, "xw_record_post reads flags of both");

/* oldest returns the start of a record, and its end in *end. */
static uint32_t oldest(struct record *k, uint32_t *end)
{
	*end = atomic_load_explicit(&k->end, memory_order_acquire);
	if (*end - k->retired > k->mask + 1) /* a program that never polls */
		k->retired = *end - (k->mask + 1);
	return k->retired;
}

/* retire retires the request of a completion and the unsignaled requests before it, which succeeded. A Write with
 * immediate data is two requests to the daemon; failure of the first does not retire it. */
static void retire(struct record *k, const uint8_t *e)
{
	uint64_t id = get64(e + XW_SLOT_ID);
	uint32_t end, i;

	for (i = oldest(k, &end); i != end; i++) {
		uint32_t kind = atomic_load_explicit(&k->at[i & k->mask].kind, memory_order_relaxed);
		bool half = e[XW_CQE_OP] == XW_OP_WRITE && (op_of(kind) == XW_OP_WRITE_IMM || op_of(kind) == XW_OP_WRITE_IMM_SE);
		bool completes = op_of(kind) == XW_OP_RECV || flags_of(kind) & XW_WR_SIGNALED;
		bool same = !half && atomic_load_explicit(&k->at[i & k->mask].id, memory_order_relaxed) == id;
		if (same && (completes || e[XW_CQE_STATUS] != XW_WC_SUCCESS)) {
			k->retired = i + 1;
			return;
		}
		if (completes)
			return; /* the daemon sent an invalid completion */
	}
}

/* A queue pair is in a list of each of its completion queues. in_cq[0] links the list of the completion queue of
 * sends, in_cq[1] that of receives if it is another one. */

static int link_of(const struct cq *cq, const struct qp *q) { return q->ib.send_cq == &cq->ib ? 0 : 1; }

static struct qp **list_of(struct cq *cq, uint32_t qp_num) { return &cq->qps[qp_num % XW_CQ_LISTS]; }

/* xw_cq_enlist and xw_cq_delist require the lock of the completion queue. */
void xw_cq_enlist(struct cq *cq, struct qp *q)
{
	struct qp **list = list_of(cq, q->ib.qp_num);

	q->in_cq[link_of(cq, q)] = *list;
	*list = q;
}

void xw_cq_delist(struct cq *cq, uint32_t qp_num)
{
	struct qp **p = list_of(cq, qp_num);

	while (*p && (*p)->ib.qp_num != qp_num)
		p = &(*p)->in_cq[link_of(cq, *p)];
	if (*p)
		*p = (*p)->in_cq[link_of(cq, *p)];
}

/* xw_cq_retire handles a polled completion. A completion with an error moves the queue pair to ERR at once: programs
 * look at its state before the event of the daemon arrives. cq must be locked. */
void xw_cq_retire(struct cq *cq, const uint8_t *e)
{
	uint32_t qp_num = get32(e + XW_CQE_QP);
	struct qp *q = *list_of(cq, qp_num);

	while (q && q->ib.qp_num != qp_num)
		q = q->in_cq[link_of(cq, q)];
	if (!q)
		return;
	if (e[XW_CQE_STATUS] != XW_WC_SUCCESS && xw_qp_state(&q->ib) != IBV_QPS_ERR)
		xw_qp_fail(q);
	struct record *k = e[XW_CQE_OP] == XW_OP_RECV ? q->rq.record : q->sq.record;
	if (k && (e[XW_CQE_OP] == XW_OP_RECV ? q->ib.recv_cq : q->ib.send_cq) == &cq->ib)
		retire(k, e);
}

/* xw_record_reset clears the record of a queue. Its completion queue and its posting must be locked. */
void xw_record_reset(struct record *k)
{
	uint32_t end;

	if (k) {
		oldest(k, &end);
		k->retired = end;
	}
}

/* records calls f for the records of requests that complete at cq. */
static void records(struct cq *cq, void (*f)(struct cq *cq, struct qp *q, struct ring *r))
{
	for (size_t i = 0; i < XW_CQ_LISTS; i++)
		for (struct qp *q = cq->qps[i]; q; q = q->in_cq[link_of(cq, q)]) {
			if (q->ib.recv_cq == &cq->ib && q->rq.record)
				f(cq, q, &q->rq);
			if (q->ib.send_cq == &cq->ib)
				f(cq, q, &q->sq);
		}
}

static void count(struct cq *cq, struct qp *q, struct ring *r)
{
	uint32_t end, first = oldest(r->record, &end);

	(void)q;
	cq->n_left += end - first;
}

static void flush(struct cq *cq, struct qp *q, struct ring *r)
{
	struct record *k = r->record;
	uint32_t end, i;

	for (i = oldest(k, &end); i != end && cq->left_at < cq->n_left; i++, cq->left_at++) {
		uint8_t *e = cq->left + (size_t)cq->left_at * XW_CQE_SIZE;
		uint64_t id = atomic_load_explicit(&k->at[i & k->mask].id, memory_order_relaxed);
		uint32_t kind = atomic_load_explicit(&k->at[i & k->mask].kind, memory_order_relaxed);
		uint8_t op = op_of(kind);
		put64(e + XW_SLOT_ID, id);
		put32(e + XW_CQE_QP, q->ib.qp_num);
		e[XW_CQE_OP] = op == XW_OP_WRITE_IMM || op == XW_OP_WRITE_IMM_SE ? (uint8_t)XW_OP_IMM : op;
		e[XW_CQE_STATUS] = XW_WC_WR_FLUSH_ERR;
		e[XW_CQE_FLAGS] = flags_of(kind) & XW_WR_MARKED ? XW_WC_WAS_MARKED : 0;
	}
	k->retired = i;
	atomic_store(xw_word(r->mem, XW_RING_HEAD), i); /* the program can post again */
}

/* xw_cq_flush completes all outstanding requests, when the daemon no longer does. cq must be locked and empty. */
void xw_cq_flush(struct cq *cq)
{
	cq->flushed = true;
	cq->n_left = cq->left_at = 0;
	records(cq, count);
	if (cq->n_left == 0 || !(cq->left = calloc(cq->n_left, XW_CQE_SIZE))) {
		cq->n_left = 0;
		return;
	}
	records(cq, flush);
	cq->n_left = cq->left_at; /* a request posted in the meantime waits for the next poll */
	cq->left_at = 0;
}
