/* Work requests that are under way, which end with IBV_WC_WR_FLUSH_ERR when the daemon is gone: programs count completions.
 *
 * Each work queue has a record of what was posted, at the indexes of its ring. A completion that is polled retires its request
 * and the ones before it. The daemon takes entries out of a ring before they complete: so the record is longer than the ring.
 * The receives of a shared queue have none: which of them a queue pair took is not known, and the others are not flushed. */
#include "objects.h"

struct posted {
	_Atomic uint64_t id;
	_Atomic uint32_t kind; /* operation and flags of the slot */
};

/* record has what was posted to a queue; retired is under the lock of the completion queue. */
struct record {
	_Atomic uint32_t end; /* index of the next request */
	uint32_t retired;     /* index of the oldest request under way */
	uint32_t mask;
	struct posted at[];
};

/* FACTOR is the length of a record in rings: one is in the ring, one in the daemon's queue, and one is at the poster. */
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

/* xw_record_post notes the n slots that are published next. The poster's lock is held. */
void xw_record_post(struct ring *r, uint32_t n)
{
	struct record *k = r->record;

	for (uint32_t i = r->own; i != r->own + n; i++) {
		const uint8_t *slot = xw_slot(r, i);
		uint8_t op = r->receives ? (uint8_t)XW_OP_RECV : slot[XW_SEND_OP];
		uint64_t id;
		memcpy(&id, slot + XW_SLOT_ID, sizeof id);
		atomic_store_explicit(&k->at[i & k->mask].id, id, memory_order_relaxed);
		atomic_store_explicit(&k->at[i & k->mask].kind, op | (uint32_t)slot[XW_SEND_FLAGS] << 8, memory_order_relaxed);
	}
	atomic_store_explicit(&k->end, r->own + n, memory_order_release);
}

_Static_assert(XW_SEND_FLAGS == XW_RECV_FLAGS, "xw_record_post reads flags of both");

/* oldest returns where a record begins and *end where it ends. */
static uint32_t oldest(struct record *k, uint32_t *end)
{
	*end = atomic_load_explicit(&k->end, memory_order_acquire);
	if (*end - k->retired > k->mask + 1) /* a program that never polls */
		k->retired = *end - (k->mask + 1);
	return k->retired;
}

/* retire ends the request of a completion, and those before it that are not signaled: these succeeded. A Write with immediate
 * data is two requests of the daemon, and the first one's failure is not its end. */
static void retire(struct record *k, const uint8_t *e)
{
	uint64_t id;
	uint32_t end, i;

	memcpy(&id, e + XW_SLOT_ID, sizeof id);
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
			return; /* the daemon made the completion up */
	}
}

/* A queue pair is in a list of each of its completion queues: link 0 is for that of sends, 1 for another one of receives. */

static int link_of(const struct cq *cq, const struct qp *q) { return q->ib.send_cq == &cq->ib ? 0 : 1; }

static struct qp **list_of(struct cq *cq, uint32_t qp_num) { return &cq->qps[qp_num % XW_CQ_LISTS]; }

/* xw_cq_enlist and xw_cq_delist are called with the completion queue locked. */
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

/* xw_cq_retire is for a completion that is polled; cq is locked. */
void xw_cq_retire(struct cq *cq, const uint8_t *e)
{
	uint32_t qp_num;

	memcpy(&qp_num, e + XW_CQE_QP, sizeof qp_num);
	struct qp *q = *list_of(cq, qp_num);
	while (q && q->ib.qp_num != qp_num)
		q = q->in_cq[link_of(cq, q)];
	if (!q)
		return;
	struct record *k = e[XW_CQE_OP] == XW_OP_RECV ? q->rq.record : q->sq.record;
	if (k && (e[XW_CQE_OP] == XW_OP_RECV ? q->ib.recv_cq : q->ib.send_cq) == &cq->ib)
		retire(k, e);
}

/* xw_record_reset forgets what was posted to a queue. Its completion queue and its posts are locked. */
void xw_record_reset(struct record *k)
{
	uint32_t end;

	if (k) {
		oldest(k, &end);
		k->retired = end;
	}
}

/* records calls f for the records whose requests complete at cq. */
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
		memcpy(e + XW_SLOT_ID, &id, sizeof id);
		memcpy(e + XW_CQE_QP, &q->ib.qp_num, sizeof q->ib.qp_num);
		e[XW_CQE_OP] = op == XW_OP_WRITE_IMM || op == XW_OP_WRITE_IMM_SE ? (uint8_t)XW_OP_IMM : op;
		e[XW_CQE_STATUS] = XW_WC_WR_FLUSH_ERR;
		e[XW_CQE_FLAGS] = flags_of(kind) & XW_WR_MARKED ? XW_WC_WAS_MARKED : 0;
	}
	k->retired = i;
	atomic_store(xw_word(r->mem, XW_RING_HEAD), i); /* there is room to post again */
}

/* xw_cq_flush makes completions of all requests that are under way, once nobody else does. cq is locked, and empty. */
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
	cq->n_left = cq->left_at; /* a request that was posted meanwhile waits for the next poll */
	cq->left_at = 0;
}
