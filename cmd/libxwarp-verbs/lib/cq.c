/* Completion queues. */
#include "objects.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SPINS 32      /* empty polls in a row after which each yields the CPU */
#define YIELDS 128    /* further empty polls after which each sleeps instead */
#define MANY 4        /* with this many CPUs no poll sleeps: enough for two programs, each with its daemon */
#define SLEEP 200000  /* maximum ns of a sleep: the program may wait for something else as well */
#define PAUSE 100000  /* a longer time in ns between two polls means that the thread also does something else */

/* empty_polls counts consecutive empty polls of one queue by this thread. A high count means that the thread waits for
 * this queue only. */
static _Thread_local struct {
	const struct cq *of;
	unsigned n;
	int64_t end; /* time of the last empty poll */
} empty_polls;

void xw_reset_empty_polls(void)
{
	empty_polls.of = NULL;
	empty_polls.n = 0;
}

static int64_t read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now(void) { return read_clock(CLOCK_MONOTONIC); }

/* xw_query_rt_values reads the clock of completion timestamps. All of it is in tv_nsec, as with the drivers of NICs. */
int xw_query_rt_values(struct ibv_context *c, struct ibv_values_ex *values)
{
	(void)c;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (values->comp_mask)
		values->raw_clock = (struct timespec){.tv_nsec = read_clock(CLOCK_MONOTONIC_RAW)};
	return 0;
}

/* polls_empty counts an empty poll of cq and reports whether the thread should sleep. */
static bool polls_empty(const struct cq *cq)
{
	if (empty_polls.of != cq) {
		empty_polls.of = cq;
		empty_polls.n = 0;
	}
	if (++empty_polls.n > SPINS && now() - empty_polls.end > PAUSE)
		empty_polls.n = 0;
	return empty_polls.n > SPINS + YIELDS;
}

/* few_processors reports whether the process can use fewer than MANY CPUs. */
static bool few_processors(void)
{
	static _Atomic int count;
	cpu_set_t set;

	if (!count)
		count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : MANY;
	return count < MANY;
}

/* cqs lists all completion queues of the process. Its lock is taken before that of a queue. */
static pthread_mutex_t cqs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cq *cqs;

/* xw_cqs_forked leaves all completion queues to the parent. */
void xw_cqs_forked(void)
{
	pthread_mutex_init(&cqs_lock, NULL); /* its holder does not exist in the child */
	cqs = NULL;
}

/* xw_cq_overrun handles the event that a queue overran. Later completions are lost. */
void xw_cq_overrun(struct session *s, uint32_t handle)
{
	GUARD(&cqs_lock);
	for (struct cq *cq = cqs; cq; cq = cq->next)
		if (cq->ib.handle == handle && xw_session(cq->ib.context) == s)
			xw_async(xw_context(cq->ib.context),
				 &(struct ibv_async_event){.element.cq = &cq->ib, .event_type = IBV_EVENT_CQ_ERR});
}

/* open_ring maps the memory of a reply with a queue's ring. */
static bool open_ring(struct call *c, struct area *a, struct ring *r)
{
	return xw_map(a, xw_take_file(c, 0)) && xw_ring_open(r, a, json_get(c->result, "ring"), XW_CQE_SIZE);
}

static int open_cq(struct cq *cq, int cqe)
{
	REPLY(c);
	int error = xw_call(xw_session(cq->ib.context), &c, -1, "create_cq", "{\"depth\":%d}", cqe);

	if (error)
		return error;
	if (!json_u32(c.result, "handle", &cq->ib.handle) || c.n_files != 2 || !open_ring(&c, &cq->area, &cq->ring))
		return EPROTO;
	if (cq->ib.channel)
		cq->signal = xw_take_file(&c, 1);
	return 0;
}

static void close_cq(struct cq *cq)
{
	free(cq->left);
	xw_unmap(&cq->area);
	if (cq->signal >= 0)
		close(cq->signal);
	free(cq);
}

/* xw_cq_wake makes the channel watch the signal of the queue. The end of that stream, when the daemon is gone, is an
 * event too. */
void xw_cq_wake(struct cq *cq)
{
	if (cq->ib.channel)
		epoll_ctl(cq->ib.channel->fd, EPOLL_CTL_ADD, cq->signal, &(struct epoll_event){.events = EPOLLIN, .data.ptr = cq});
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ib)
{
	struct cq *cq = container_of(ib, struct cq, ib);
	int error = xw_destroy(xw_session(ib->context), "destroy_cq", ib->handle);

	if (error)
		return error;
	LOCKED(&cqs_lock)
		UNLINK(cqs, cq);
	if (ib->channel) {
		GUARD(&container_of(ib->channel, struct channel, ib)->lock);
		epoll_ctl(ib->channel->fd, EPOLL_CTL_DEL, cq->signal, NULL);
		ib->channel->refcnt--;
	}
	xw_async_end(ib->context, &(struct ibv_async_event){.element.cq = ib, .event_type = IBV_EVENT_CQ_ERR});
	xw_events_end(&cq->completions);
	close_cq(cq);
	return 0;
}

static enum ibv_wc_status status_of(uint8_t s)
{
#define STATUS(name) [XW_WC_##name] = IBV_WC_##name
	static const uint8_t statuses[] = {
		STATUS(SUCCESS), STATUS(LOC_LEN_ERR), STATUS(LOC_QP_OP_ERR), STATUS(LOC_PROT_ERR), STATUS(WR_FLUSH_ERR),
		STATUS(REM_INV_REQ_ERR), STATUS(REM_ACCESS_ERR), STATUS(REM_OP_ERR), STATUS(BAD_RESP_ERR), STATUS(FATAL_ERR),
		STATUS(MW_BIND_ERR), STATUS(RETRY_EXC_ERR), STATUS(RNR_RETRY_EXC_ERR),
	};
	return s < sizeof statuses ? statuses[s] : IBV_WC_GENERAL_ERR;
}

static enum ibv_wc_opcode opcode_of(const uint8_t *e)
{
	switch (e[XW_CQE_OP]) {
	case XW_OP_IMM: /* the second part of a Write with immediate data */
	case XW_OP_IMM_SE:
	case XW_OP_WRITE: return IBV_WC_RDMA_WRITE;
	case XW_OP_READ: return IBV_WC_RDMA_READ;
	case XW_OP_FETCH_ADD: return IBV_WC_FETCH_ADD;
	case XW_OP_CMP_SWAP: return IBV_WC_COMP_SWAP;
	case XW_OP_LOCAL_INV: return IBV_WC_LOCAL_INV;
	case XW_OP_BIND_MW: return IBV_WC_BIND_MW;
	case XW_OP_RECV:
		return (e[XW_CQE_FLAGS] & (XW_WC_WITH_IMM | XW_WC_OF_SEND)) == XW_WC_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	}
	return IBV_WC_SEND;
}

static unsigned flags_of(const uint8_t *e)
{
	return (e[XW_CQE_FLAGS] & XW_WC_WITH_IMM ? IBV_WC_WITH_IMM : 0) |
	       (e[XW_CQE_FLAGS] & XW_WC_WITH_INVALIDATE ? IBV_WC_WITH_INV : 0);
}

static struct ibv_wc completion(const uint8_t *e)
{
	struct ibv_wc wc = {
		.wr_id = get64(e + XW_SLOT_ID), .status = status_of(e[XW_CQE_STATUS]), .opcode = opcode_of(e),
		.byte_len = get32(e + XW_CQE_LEN), .qp_num = get32(e + XW_CQE_QP), .wc_flags = flags_of(e),
	};

	if (wc.wc_flags & IBV_WC_WITH_IMM)
		wc.imm_data = get32(e + XW_CQE_IMM);
	else if (wc.wc_flags & IBV_WC_WITH_INV)
		wc.invalidated_rkey = get32(e + XW_CQE_INVALIDATED);
	return wc;
}

static bool marked(const uint8_t *e) { return e[XW_CQE_FLAGS] & XW_WC_WAS_MARKED; }

/* take converts a completion, and copies back the data of a marked request. */
static struct ibv_wc take(const uint8_t *e)
{
	struct ibv_wc wc = completion(e);

	if (marked(e))
		xw_bounce_done(&wc);
	return wc;
}

/* next retires the request of the oldest completion of a queue, which is at e, and returns the completion. */
static struct ibv_wc next(struct cq *cq, const uint8_t *e)
{
	if (!cq->flushed) /* otherwise xw_cq_flush has retired all requests */
		xw_cq_retire(cq, e);
	return take(e);
}

/* in_ring returns the number of completions in the ring, or -1 if the ring is invalid or no longer used, or if it is
 * empty and overran or its daemon is gone. */
static int in_ring(struct cq *cq)
{
	uint32_t n = atomic_load_explicit(xw_word(cq->ring.mem, XW_RING_TAIL), memory_order_acquire) - cq->ring.own;

	if (n > cq->ring.slots || cq->flushed)
		return -1;
	if (n == 0 && atomic_load_explicit(xw_word(cq->ring.mem, XW_RING_STATE), memory_order_relaxed) == XW_STATE_OVERRUN)
		return -1;
	return n == 0 && xw_session(cq->ib.context)->dead ? -1 : (int)n;
}

/* available returns the number of completions left from the previous ring, or in the ring if none are left. When the
 * daemon is gone, it flushes the outstanding requests. */
static int available(struct cq *cq)
{
	int n = cq->n_left ? (int)(cq->n_left - cq->left_at) : in_ring(cq);

	if (n > 0 || !xw_session(cq->ib.context)->dead)
		return n;
	xw_cq_flush(cq);
	return cq->n_left ? (int)cq->n_left : -1;
}

/* at returns the completion at an offset from the oldest one. */
static uint8_t *at(struct cq *cq, uint32_t i)
{
	return cq->n_left ? cq->left + (size_t)(cq->left_at + i) * XW_CQE_SIZE : xw_slot(&cq->ring, cq->ring.own + i);
}

int xw_req_notify_cq(struct ibv_cq *ib, int solicited_only)
{
	struct cq *cq = container_of(ib, struct cq, ib);

	GUARD(&cq->poll); /* the ring may be replaced at this moment */
	/* Of two notification requests the stronger one counts. */
	if (!solicited_only || atomic_load(xw_word(cq->ring.mem, XW_RING_ARMED)) == 0)
		atomic_store(xw_word(cq->ring.mem, XW_RING_ARMED), solicited_only ? (uint32_t)XW_ARMED_SOLICITED : 1);
	if (xw_session(ib->context)->dead && available(cq) > 0)
		xw_cq_wake(cq);
	return 0;
}

static void drop_left(struct cq *cq)
{
	free(cq->left);
	cq->left = NULL;
	cq->n_left = cq->left_at = 0;
}

/* release frees the oldest completion. */
static void release(struct cq *cq)
{
	if (cq->n_left) {
		if (++cq->left_at == cq->n_left)
			drop_left(cq);
		return;
	}
	cq->ring.own++;
	atomic_store_explicit(xw_word(cq->ring.mem, XW_RING_HEAD), cq->ring.own, memory_order_release);
}

/* unlock_poll ends a poll. After several empty polls in a row, each yields the CPU, which the daemon may need. With
 * few CPUs and after more empty polls, each sleeps instead until the daemon writes a completion, at most SLEEP: the
 * daemon may be waiting for another CPU while a yielding thread has this one to itself. */
static void unlock_poll(struct cq *cq, bool found)
{
	bool yields = (cq->idle = found ? 0 : cq->idle + 1) > SPINS;
	_Atomic uint32_t *waits = NULL;

	if (found)
		xw_reset_empty_polls();
	else if (few_processors() && polls_empty(cq)) {
		waits = xw_word(cq->ring.mem, XW_RING_WAITS);
		atomic_store(waits, 1);
		atomic_thread_fence(memory_order_seq_cst);
		if (available(cq) != 0) {
			waits = NULL;
			yields = false;
		}
	}
	pthread_mutex_unlock(&cq->poll);
	if (waits) { /* the ring may be unmapped in the meantime; the kernel handles that */
		int before = errno;
		syscall(SYS_futex, waits, FUTEX_WAIT, 1, &(struct timespec){.tv_nsec = SLEEP}, NULL, 0);
		errno = before;
	} else if (yields)
		sched_yield();
	if (empty_polls.n >= SPINS)
		empty_polls.end = now();
}

int xw_poll_cq(struct ibv_cq *ib, int room, struct ibv_wc *wc)
{
	struct cq *cq = container_of(ib, struct cq, ib);
	int n = 0;

	pthread_mutex_lock(&cq->poll);
	for (int left = available(cq); n < room && left > 0; left--) {
		const uint8_t *e = at(cq, 0);
		if (get32(e + XW_CQE_QP) != 0) /* 0: its queue pair was destroyed */
			wc[n++] = next(cq, e);
		release(cq);
	}
	if (n == 0 && room > 0 && available(cq) < 0)
		n = -1;
	unlock_poll(cq, n != 0);
	return n;
}

/* save copies the completions in the ring behind those left from the previous ring. */
static int save(struct cq *cq)
{
	uint32_t before = cq->n_left - cq->left_at;
	int n = in_ring(cq);

	if (n <= 0)
		return 0;
	uint8_t *all = malloc((before + (size_t)n) * XW_CQE_SIZE);
	if (!all)
		return ENOMEM;
	if (before)
		memcpy(all, cq->left + (size_t)cq->left_at * XW_CQE_SIZE, before * XW_CQE_SIZE);
	for (int i = 0; i < n; i++)
		memcpy(all + (before + (size_t)i) * XW_CQE_SIZE, xw_slot(&cq->ring, cq->ring.own + (uint32_t)i), XW_CQE_SIZE);
	drop_left(cq);
	cq->left = all;
	cq->n_left = before + (uint32_t)n;
	return 0;
}

EXPORT int ibv_resize_cq(struct ibv_cq *ib, int cqe)
{
	struct cq *cq = container_of(ib, struct cq, ib);
	struct session *s = xw_session(ib->context);
	struct area area = {0};
	struct ring r;
	REPLY(c);

	if (cqe < 1 || cqe > (int)XW_MAX_CQ_DEPTH)
		return EINVAL;
	GUARD(&cq->poll);
	int error = xw_call(s, &c, -1, "resize_cq", "{\"handle\":%u,\"depth\":%d}", ib->handle, cqe);
	if (!error && (c.n_files != 1 || !open_ring(&c, &area, &r)))
		error = EPROTO;
	if (!error)
		error = xw_ask(s, "resize_cq", "{\"handle\":%u}", ib->handle);
	if (!error) /* the daemon no longer writes to the previous ring */
		error = save(cq);
	xw_unmap(error ? &area : &cq->area);
	if (error)
		return error;
	cq->area = area;
	cq->ring = r;
	ib->cqe = (int)r.slots;
	return 0;
}

/* each calls f for the waiting completions, with the queue locked. */
static void each(struct cq *cq, void (*f)(uint8_t *e, uint32_t qp), uint32_t qp)
{
	GUARD(&cq->poll);
	for (uint32_t i = cq->left_at; i < cq->n_left; i++)
		f(cq->left + (size_t)i * XW_CQE_SIZE, qp);
	int n = in_ring(cq);
	for (int i = 0; i < n; i++)
		f(xw_slot(&cq->ring, cq->ring.own + (uint32_t)i), qp);
}

static void forget(uint8_t *e, uint32_t qp)
{
	if (get32(e + XW_CQE_QP) != qp)
		return;
	take(e);
	put32(e + XW_CQE_QP, 0);
}

/* xw_cq_forget removes the completions of a destroyed queue pair from the queue. */
void xw_cq_forget(struct cq *cq, uint32_t qp)
{
	LOCKED(&cq->poll)
		xw_cq_delist(cq, qp);
	each(cq, forget, qp);
}

void xw_cq_add(struct cq *cq, struct qp *q)
{
	LOCKED(&cq->poll)
		xw_cq_enlist(cq, q);
}

static void land(uint8_t *e, uint32_t qp)
{
	(void)qp;
	if (get32(e + XW_CQE_QP) == 0 || !marked(e))
		return;
	struct ibv_wc wc = completion(e);
	xw_bounce_land(&wc);
}

void xw_cqs_land(void)
{
	GUARD(&cqs_lock);
	for (struct cq *cq = cqs; cq; cq = cq->next)
		each(cq, land, 0);
}

/* Extended queues: start_poll locks the queue; completions are copied one by one. */

static int next_poll(struct ibv_cq_ex *ex)
{
	struct cq *cq = container_of(ex, struct cq, ex);
	int left = available(cq);

	for (; left > 0; left--) {
		memcpy(cq->current, at(cq, 0), sizeof cq->current);
		release(cq);
		if (get32(cq->current + XW_CQE_QP) == 0)
			continue;
		struct ibv_wc wc = next(cq, cq->current);
		ex->status = wc.status;
		ex->wr_id = wc.wr_id;
		if (cq->stamps) {
			cq->polled = (uint64_t)read_clock(CLOCK_MONOTONIC_RAW);
			cq->polled_wall = (uint64_t)read_clock(CLOCK_REALTIME);
		}
		return 0;
	}
	return left < 0 ? EIO : ENOENT;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = container_of(ex, struct cq, ex);

	if (attr && attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->poll);
	int error = next_poll(ex);
	if (error)
		unlock_poll(cq, error != ENOENT);
	else {
		cq->idle = 0;
		xw_reset_empty_polls();
	}
	return error;
}

static void end_poll(struct ibv_cq_ex *ex) { pthread_mutex_unlock(&container_of(ex, struct cq, ex)->poll); }

#define READ(name, type, expression)                                      \
	static type read_##name(struct ibv_cq_ex *ex)                     \
	{                                                                 \
		const struct cq *cq = container_of(ex, struct cq, ex);    \
		const uint8_t *e = cq->current;                           \
		(void)e;                                                  \
		return expression;                                        \
	}
READ(opcode, enum ibv_wc_opcode, opcode_of(e))
READ(zero, uint32_t, 0)
READ(zero_byte, uint8_t, 0)
READ(byte_len, uint32_t, get32(e + XW_CQE_LEN))
READ(imm_data, __be32, get32(e + (e[XW_CQE_FLAGS] & XW_WC_WITH_INVALIDATE ? XW_CQE_INVALIDATED : XW_CQE_IMM)))
READ(qp_num, uint32_t, get32(e + XW_CQE_QP))
READ(wc_flags, unsigned, flags_of(e))
READ(completion_ts, uint64_t, cq->polled)
READ(completion_wallclock_ns, uint64_t, cq->polled_wall)

static const struct ibv_cq_ex operations = {
	.start_poll = start_poll, .next_poll = next_poll, .end_poll = end_poll, .read_opcode = read_opcode,
	.read_vendor_err = read_zero, .read_byte_len = read_byte_len, .read_imm_data = read_imm_data,
	.read_qp_num = read_qp_num, .read_src_qp = read_zero, .read_wc_flags = read_wc_flags, .read_slid = read_zero,
	.read_sl = read_zero_byte, .read_dlid_path_bits = read_zero_byte, .read_completion_ts = read_completion_ts,
	.read_completion_wallclock_ns = read_completion_wallclock_ns,
};

static struct cq *create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, uint32_t vector)
{
	pthread_mutexattr_t again; /* recursive: programs may destroy queue pairs between start_poll and end_poll */
	struct cq *cq;
	int error;

	if (cqe < 1 || cqe > (int)XW_MAX_CQ_DEPTH || vector >= (uint32_t)context->num_comp_vectors)
		return xw_null(EINVAL);
	if (!(cq = calloc(1, sizeof *cq)))
		return xw_null(ENOMEM);
	cq->ex = operations;
	cq->signal = -1;
	cq->ib.context = context;
	cq->ib.channel = channel;
	cq->ib.cq_context = cq_context;
	xw_events_init(&cq->completions);
	xw_events_init(&cq->async);
	pthread_mutexattr_init(&again);
	pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&cq->poll, &again);
	if ((error = open_cq(cq, cqe))) {
		close_cq(cq);
		return xw_null(error);
	}
	cq->ib.cqe = (int)cq->ring.slots;
	if (channel) {
		struct channel *ch = container_of(channel, struct channel, ib);
		LOCKED(&ch->lock)
			channel->refcnt++;
		xw_cq_wake(cq);
	}
	GUARD(&cqs_lock);
	LINK(cqs, cq);
	return cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct cq *cq = create_cq(context, cqe, cq_context, channel, (uint32_t)vector);

	return cq ? &cq->ib : NULL;
}

struct ibv_cq_ex *xw_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *a)
{
	int error;

	if ((error = xw_check_flags(XW_FLAGS_CQ_INIT, a->comp_mask)) || (error = xw_check_flags(XW_FLAGS_CQ_WC, a->wc_flags)) ||
	    (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && (error = xw_check_flags(XW_FLAGS_CQ_CREATE, a->flags))))
		return xw_null(error);
	struct cq *cq = create_cq(context, (int)a->cqe, a->cq_context, a->channel, a->comp_vector);
	if (!cq)
		return NULL;
	cq->stamps = a->wc_flags & XW_STAMPS;
	return &cq->ex;
}
