/* The objects of libibverbs. */
#pragma once
#include "flags.h"
#include "memory.h"
#include "session.h"

/* XW_READS is the maximum number of outstanding Reads and atomics of a queue pair in each direction, as in the
 * engine. */
#define XW_READS 16

/* XW_MAX_GIDS limits the number of addresses of a device that programs see. */
#define XW_MAX_GIDS 128

/* Verbs objects. Each begins with the structure that programs see. */
struct device {
	struct ibv_device ib;
	const struct link *_Atomic link; /* the link that it points to is immutable and never freed */
	struct session *session; /* kept until the process or the daemon exits; NULL: none */
	struct ibv_context *of_cm; /* context of rdma_cm; NULL: none */
	struct device *next;
};

/* events counts the events of an object, which is destroyed only when the program has acknowledged all of them. */
struct events {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned delivered, acked;
};

struct async {
	struct ibv_async_event event;
	struct async *next;
};

struct context {
	struct verbs_context v;
	struct session *s;
	struct context *next; /* of the session */
	struct async *events, **tail;
	struct ibv_pd *pd; /* default for identifiers; NULL unless the context belongs to rdma_cm */
};

/* backing is how the daemon accesses a region: the program's own pages, a copy, or a shared file. */
struct backing {
	struct share *share;   /* NULL: a file */
	struct bounce *bounce; /* NULL: no copy */
	int file;	       /* descriptor until the daemon has mapped it; -1: none */
	uint64_t offset;       /* in file */
};

struct mr {
	struct ibv_mr ib;
	int access;
	struct backing backing;
};

struct channel {
	struct ibv_comp_channel ib;
	pthread_mutex_t lock; /* serialises delivery and destruction of a queue */
};

#define XW_CQ_LISTS 256 /* number of lists in qps */

struct cq {
	union {
		struct ibv_cq ib;
		struct ibv_cq_ex ex;
	};
	struct ring ring;
	pthread_mutex_t poll;
	struct area area;
	uint8_t *left; /* completions from before ibv_resize_cq, or flushed ones: n_left in all, left_at already consumed */
	uint32_t n_left, left_at;
	int signal; /* channel of the queue; -1: none */
	bool flushed;	 /* the daemon is gone: the ring is no longer used */
	struct cq *next; /* next in the process */
	struct qp *qps[XW_CQ_LISTS]; /* queue pairs that complete here, hashed by number, see flush.c */
	unsigned idle; /* consecutive empty polls */
	struct events completions, async;
	uint8_t current[XW_CQE_SIZE]; /* completion of an extended poll */
	bool stamps;			   /* the program reads timestamps */
	uint64_t polled, polled_wall;	   /* time of the poll by CLOCK_MONOTONIC_RAW and CLOCK_REALTIME, in ns */
};

struct srq {
	struct ibv_srq ib;
	struct session *s;
	struct srq *next; /* of the session */
	struct ring rq;
	pthread_mutex_t post;
	struct area area;
	uint32_t bell;
	uint32_t max_sge, depth;
	struct events async;
};

struct qp {
	union {
		struct ibv_qp ib;
		struct ibv_qp_ex ex;
	};
	struct session *s;
	struct qp *next; /* of the session */
	struct qp *in_cq[2];
	struct ring sq, rq;
	pthread_mutex_t send, recv;
	struct area area;
	uint32_t bell;
	uint32_t max_sge, max_inline;
	struct events async;
	bool sig_all;
	bool down;
	bool of_cm; /* style roce: rdma_cm connects it, although the program moves it to RTS */
	unsigned allowed; /* access rights of the peer */
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	/* For ibv_wr_*: the list under construction. */
	uint32_t built; /* slots */
	int built_error;
	uint8_t *slot;
};

/* The mutex of a queue pair guards changes of its state. Posting reads the state without it. */
static inline enum ibv_qp_state xw_qp_state(const struct ibv_qp *q) { return __atomic_load_n(&q->state, __ATOMIC_RELAXED); }

static inline void xw_qp_becomes(struct ibv_qp *q, enum ibv_qp_state state)
{
	__atomic_store_n(&q->state, state, __ATOMIC_RELAXED);
}

/* xw_qp_fail moves a queue pair to ERR whose connection has ended. */
static inline void xw_qp_fail(struct qp *q)
{
	GUARD(&q->ib.mutex);
	q->down = true;
	xw_qp_becomes(&q->ib, IBV_QPS_ERR);
}

static inline struct context *xw_context(struct ibv_context *c)
{
	return container_of(verbs_get_ctx(c), struct context, v);
}

static inline struct session *xw_session(struct ibv_context *c) { return xw_context(c)->s; }

/* The style of a device: an iWARP RNIC, or one whose queue pairs are connected by ibv_modify_qp, as with RoCE. See
 * roce.c. */
bool xw_roce(void);
/* xw_gids queries the addresses of a device, which are its GIDs. It stores at most max of them, and returns the number
 * of all, at most XW_MAX_GIDS, or -1 with errno. */
int xw_gids(struct session *s, union ibv_gid *gids, int max);
/* xw_no_gid prints that the device has no GID with this index, and returns EINVAL. It prints once, or each time with
 * XWARP_DEBUG. */
int xw_no_gid(int index, int gids);
/* Attributes that ibv_modify_qp requires in style roce besides the state, as in the kernel's qp_state_table. */
#define XW_INIT_MUST (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define XW_RTR_MUST (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define XW_RTS_MUST (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)
/* XW_QPN_OF_CM is the number of the peer's queue pair that rdma_init_qp_attr sets. No other queue pair has it: QPN 0
 * is reserved for subnet management. */
#define XW_QPN_OF_CM 0
bool xw_may_roce(enum ibv_qp_state from, enum ibv_qp_state to, const struct ibv_qp_attr *a, int mask);
/* xw_move_roce sends a transition to the daemon. a has all attributes after the transition. */
int xw_move_roce(struct qp *q, enum ibv_qp_state from, enum ibv_qp_state to, const struct ibv_qp_attr *a);
int xw_set_state(struct qp *q, const char *state, const char *more); /* in the daemon; more: further members, in JSON */
int xw_allow(struct qp *q, unsigned rights); /* limits the rights of the peer to these */

/* xw_no_operations returns the private part of a context for rdma-core. See unknown.c. */
void *xw_no_operations(void);

extern const char xw_datagrams[]; /* message for unsupported datagrams */

bool xw_loopback(const struct sockaddr *addr);
bool xw_same_address(const struct sockaddr *a, const struct sockaddr *b); /* without the port; a zone of 0 is any */
struct ibv_device *xw_device_at(const struct sockaddr *addr, bool any);
void xw_events_init(struct events *e);
void xw_events_ack(struct events *e, unsigned n);
void xw_events_end(struct events *e); /* waits until all are acknowledged */
void xw_async(struct context *c, struct ibv_async_event *e);
/* xw_async_end removes the events of a destroyed object from the queue, and waits until the program has acknowledged
 * those that it received. e identifies the object. */
void xw_async_end(struct ibv_context *c, struct ibv_async_event *e);
struct ibv_mw *xw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int xw_dealloc_mw(struct ibv_mw *mw);
int xw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
unsigned xw_rights(int access); /* as encoded by the daemon */
#define XW_WRITTEN (XW_ACCESS_LOCAL_WRITE | XW_ACCESS_REMOTE_WRITE | XW_ACCESS_REMOTE_ATOMIC)
#define XW_REMOTE_RIGHTS (XW_ACCESS_REMOTE_READ | XW_ACCESS_REMOTE_WRITE | XW_ACCESS_REMOTE_ATOMIC)
int xw_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int xw_query_rt_values(struct ibv_context *c, struct ibv_values_ex *values);
void xw_reset_empty_polls(void); /* resets the count of empty polls: the thread does more than poll one queue */
int xw_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *xw_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
void xw_cq_add(struct cq *cq, struct qp *q);
void xw_cq_forget(struct cq *cq, uint32_t qp);
/* xw_cq_wake makes the channel of a queue watch the queue's signal. If the daemon is gone, that wakes threads that
 * wait for an event. */
void xw_cq_wake(struct cq *cq);
/* Requests to flush when the daemon is gone, see flush.c. */
struct record *xw_record_new(uint32_t slots);
void xw_record_post(struct ring *r, uint32_t n);
void xw_record_reset(struct record *k);
void xw_cq_enlist(struct cq *cq, struct qp *q);
void xw_cq_delist(struct cq *cq, uint32_t qp_num);
void xw_cq_retire(struct cq *cq, const uint8_t *e);
void xw_cq_flush(struct cq *cq);
void xw_cq_overrun(struct session *s, uint32_t handle);
int xw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int xw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int xw_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *xw_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
struct ibv_xrcd *xw_open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a);
void xw_srq_limit(struct session *s, uint32_t handle);
void xw_qp_gone(struct session *s, uint32_t handle);
extern const struct layer xw_verbs_layer;
void xw_qps_lost(struct session *s); /* for a daemon that is gone; the session's lock must be held */
struct ibv_qp *xw_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
void xw_qp_down(struct session *s, uint32_t handle, struct json event);
extern const struct ibv_qp_ex xw_wr_operations; /* ibv_wr_* of a new queue pair */
void xw_cqs_forked(void);
void xw_cqs_land(void); /* copies back the data of all completed requests */
void xw_devices_forked(void);
