/* What the files of the library share. PROTOCOL.md of package control says what the daemon expects. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/* fail sets errno and returns -1, null sets errno and returns NULL. */
int xw_fail(int error);
void *xw_null(int error);
/* xw_refused says once, on stderr, that something is not offered, and returns EOPNOTSUPP. */
int xw_refused(const char *what);
extern const char xw_datagrams[]; /* what refuses datagrams says */
bool xw_first_time(const char *what); /* says whether it was not called with this pointer before */
void xw_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* xw_socket is socket(2), also where librspreload.so has that make rsockets. */
int xw_socket(int family, int type);

/* JSON of replies: a value is a piece of the text. What is not there has no length. */
struct json {
	const char *p;
	size_t n;
};
struct json json_get(struct json object, const char *key);
bool json_next(struct json array, struct json *item); /* *item: the one before, or empty */
bool json_number(struct json v, uint64_t *n);
bool json_text(struct json v, char *to, size_t room);
bool json_is(struct json v, const char *word);
int json_base64(struct json v, uint8_t *to, int room); /* bytes; -1: it is none */
void xw_base64(const void *from, size_t n, char *to);  /* to: 4 * ((n + 2) / 3) + 1 bytes */
#define XW_BASE64_LEN(n) (4 * (((n) + 2) / 3) + 1)

/* A session is a connection to the daemon for one of its devices. All contexts of the device share it. */
struct session;
struct call;

/* A call is a request. done runs on the session's reader when the reply is there; it must not wait for another reply. */
struct call {
	void (*done)(struct call *c);
	void *owner;
	int error;	    /* errno; 0: result counts */
	struct json result; /* valid in done, or until xw_call_end */
	struct json failure;
	const char *op;
	int files[XW_MAX_FILES];
	int n_files;
	/* The session's own. */
	uint64_t id;
	struct call *next;
	sem_t ready;
	char *body;
};

struct link { /* a device of the daemon */
	char name[IBV_SYSFS_NAME_MAX - 6];
	char interface[32];
	bool kernel; /* transport of the kernel's sockets: all addresses */
	unsigned mtu;
};

/* What the user may have at most, as ibv_query_device tells. */
struct most {
	uint64_t memory; /* bytes of regions */
	int pds, mrs, cqs, completions, srqs, qps, work_requests;
};

struct session {
	pthread_mutex_t lock; /* of everything here that changes */
	int fd;
	atomic_bool dead;
	int refs;
	uint64_t last;
	struct call *calls;
	struct context *contexts;
	struct qp *qps;
	struct srq *srqs;
	pthread_t reader;
	uint8_t *bell; /* doorbell memory */
	int ring;      /* its eventfd */
	struct link link;
	struct link *links; /* of all devices */
	int n_links;
	struct most most;
};

struct session *xw_session_open(const char *device, int *error);
struct session *xw_session_get(struct session *s);
void xw_session_put(struct session *s);
void *xw_reader(void *session); /* the thread that receives; it owns a reference */
/* xw_call sends a request whose arguments are the JSON of format and waits; fd is sent along unless -1. The answer is errno.
 * xw_call_end gives back what a reply left in c. xw_ask does both. */
int xw_call(struct session *s, struct call *c, int fd, const char *op, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
void xw_call_end(struct call *c);
/* xw_call_explain says on stderr why the daemon refused a request, once for each op. */
void xw_call_explain(const struct call *c);
int xw_take_file(struct call *c, int i); /* a descriptor of the reply, which is the caller's then */
int xw_ask(struct session *s, const char *op, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* xw_begin is xw_call that does not wait: c->done is called, at once when the session is dead. */
void xw_begin(struct session *s, struct call *c, const char *op, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void xw_cancel(struct session *s, struct call *c);

/* A ring in shared memory. */
struct ring {
	uint8_t *mem; /* of the ring, in the mapping */
	uint32_t slots, size;
	uint32_t own; /* this side's index */
	bool receives;
	struct record *record; /* of requests that are under way, see flush.c; NULL: there is none */
};

void *xw_map(int fd, size_t n); /* maps and populates shared memory of the daemon's, closes fd */
bool xw_ring_open(struct ring *r, void *mem, size_t n, struct json geometry);
size_t xw_ring_end(struct json geometry); /* where it ends in its memory; 0: it cannot be */

static inline _Atomic uint32_t *xw_word(void *mem, size_t at)
{
	return (_Atomic uint32_t *)(void *)((uint8_t *)mem + at);
}

static inline uint8_t *xw_slot(struct ring *r, uint32_t i)
{
	return r->mem + XW_RING_SLOTS + (size_t)(i & (r->slots - 1)) * r->size;
}

/* XW_READS is how many Reads and atomics a queue pair may have under way, and its peer: the engine's choice. */
#define XW_READS 16

/* XW_MAX_GIDS bounds the addresses of a device that programs see. */
#define XW_MAX_GIDS 128

/* Verbs objects. Each begins with what programs see. */
struct device {
	struct ibv_device ib;
	const struct link *_Atomic link; /* what it points to never changes, and stays */
	struct device *next;
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
	struct ibv_pd *pd; /* of identifiers for which the program names none; NULL unless the context is rdma_cm's */
};

struct pd {
	struct ibv_pd ib;
};

/* backing is where the daemon finds a region: in the program's own pages, in a copy, or in a memfd of the program. */
struct backing {
	struct share *share;   /* NULL: it is a memfd of the program */
	struct bounce *bounce; /* NULL: there is no copy */
	int memfd;	       /* until the daemon has mapped it; -1: there is none */
	uint64_t offset;       /* in memfd */
};

struct mr {
	struct ibv_mr ib;
	int access;
	struct backing backing;
};

struct channel {
	struct ibv_comp_channel ib;
	pthread_mutex_t lock; /* of delivery against the end of a queue */
};

#define XW_CQ_LISTS 256 /* of queue pairs */

struct cq {
	union {
		struct ibv_cq ib;
		struct ibv_cq_ex ex;
	};
	struct ring ring;
	pthread_mutex_t poll;
	void *mem;
	size_t mem_len;
	uint8_t *left; /* completions of the ring before ibv_resize_cq: n_left of them, left_at are taken */
	uint32_t n_left, left_at;
	int signal; /* the queue's own channel; -1: none */
	bool over;
	bool flushed;	 /* the daemon is gone: nothing comes from the ring any more */
	struct cq *next; /* of all of the process */
	struct qp *qps[XW_CQ_LISTS]; /* those that complete here, by number, see flush.c */
	unsigned idle; /* polls in a row that found nothing */
	unsigned delivered;	  /* events, under ib.mutex */
	unsigned async_delivered; /* likewise */
	uint8_t current[XW_CQE_SIZE]; /* of an extended poll */
};

struct srq {
	struct ibv_srq ib;
	struct session *s;
	struct srq *next; /* of the session */
	struct ring rq;
	pthread_mutex_t post;
	void *mem;
	size_t mem_len;
	uint32_t bell;
	uint32_t max_sge, depth;
	unsigned delivered; /* events, under ib.mutex */
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
	void *mem;
	size_t mem_len;
	uint32_t bell;
	uint32_t max_sge, max_inline;
	unsigned delivered; /* events, under ib.mutex */
	bool sig_all;
	bool down;
	unsigned allowed; /* rights of the peer */
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	/* Of ibv_wr_*: the list that is being built. */
	uint32_t built; /* slots */
	int built_error;
	uint8_t *slot;
};

/* The state of a queue pair changes under its mutex, who posts looks at it without. */
static inline enum ibv_qp_state xw_qp_state(const struct ibv_qp *q) { return __atomic_load_n(&q->state, __ATOMIC_RELAXED); }

static inline void xw_qp_becomes(struct ibv_qp *q, enum ibv_qp_state state)
{
	__atomic_store_n(&q->state, state, __ATOMIC_RELAXED);
}

static inline struct context *xw_context(struct ibv_context *c)
{
	return container_of(verbs_get_ctx(c), struct context, v);
}

static inline struct session *xw_session(struct ibv_context *c) { return xw_context(c)->s; }

/* The style of a device: an RNIC for iWARP, or one whose queue pairs ibv_modify_qp connects, as those of RoCE. See roce.c. */
bool xw_roce(void);
/* xw_gids asks for the addresses of a device, which are its GIDs: how many there are, of which max are stored; -1: errno. */
int xw_gids(struct session *s, union ibv_gid *gids, int max);
int xw_modify_roce(struct qp *q, struct ibv_qp_attr *attr, int mask);
int xw_allow(struct qp *q, unsigned rights); /* leaves the peer these rights alone */

bool xw_loopback(const struct sockaddr *addr);
struct ibv_device *xw_device_at(const struct sockaddr *addr, bool any);
void xw_async(struct context *c, struct ibv_async_event *e);
/* xw_async_end takes the events of an object that is destroyed out of the queue, and waits until those that the program
 * has are acknowledged. e says which object. */
void xw_async_end(struct ibv_context *c, struct ibv_async_event *e);
struct ibv_mw *xw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int xw_dealloc_mw(struct ibv_mw *mw);
int xw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
unsigned xw_rights(int access); /* as the daemon has them */
#define XW_WRITTEN (XW_ACCESS_LOCAL_WRITE | XW_ACCESS_REMOTE_WRITE | XW_ACCESS_REMOTE_ATOMIC)
#define XW_REMOTE_RIGHTS (XW_ACCESS_REMOTE_READ | XW_ACCESS_REMOTE_WRITE | XW_ACCESS_REMOTE_ATOMIC)
int xw_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int xw_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *xw_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
void xw_cq_add(struct cq *cq, struct qp *q);
void xw_cq_forget(struct cq *cq, uint32_t qp);
/* xw_cq_wake has whoever waits for an event of a queue look at it. The daemon is gone. */
void xw_cq_wake(struct cq *cq);
/* Requests that are flushed when the daemon is gone, see flush.c. */
struct record *xw_record_new(uint32_t slots);
void xw_record_post(struct ring *r, uint32_t n);
void xw_record_reset(struct record *k);
void xw_cq_enlist(struct cq *cq, struct qp *q);
void xw_cq_delist(struct cq *cq, uint32_t qp_num);
void xw_cq_retire(struct cq *cq, const uint8_t *e);
void xw_cq_flush(struct cq *cq);
int xw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int xw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int xw_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *xw_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
void xw_srq_limit(struct session *s, uint32_t handle);
void xw_qp_gone(struct session *s, uint32_t handle);
void xw_qps_lost(struct session *s); /* the daemon is gone; the session's lock is held */
struct ibv_qp *xw_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
void xw_qp_down(struct session *s, uint32_t handle, struct json event);
void xw_wr_init(struct qp *q);
void xw_cm_down(struct session *s, uint32_t qp, struct json error);
void xw_cm_gone(struct session *s);

/* Memory that the daemon can map. A share keeps the pages of a range of the program moved into the arena. */
struct share;
int xw_share(void *addr, size_t length, struct share **out);
void xw_unshare(struct share *s);
/* xw_memfd_of finds the memfd that is mapped at addr, and the offset there. The caller closes it. EOPNOTSUPP: it is not one
 * that the daemon can map, EFAULT: the program itself may not write there, or the memfd is shorter. */
int xw_memfd_of(void *addr, size_t length, bool write, int *memfd, uint64_t *offset);

/* xw_find_memfd duplicates a descriptor of this process of a memfd that the daemon can map; -1: there is none. */
int xw_find_memfd(dev_t device, ino_t inode);

bool xw_mapped(dev_t device, ino_t inode); /* says whether a file is, or that there is no saying */

/* Bounce memory, see bounce.c. */
struct bounce;
extern atomic_uint xw_bounces; /* how many there are */
int xw_bounce_make(void *addr, size_t length, struct bounce **out);
void *xw_bounce_copy(const struct bounce *b);
void xw_bounce_use(struct bounce *b, uint32_t lkey, uint64_t iova);
void xw_bounce_free(struct bounce *b);
/* xw_bounce_send and xw_bounce_recv look at a slot before it is published; the answer is errno. */
int xw_bounce_send(const void *owner, uint8_t *slot);
int xw_bounce_recv(const void *owner, uint8_t *slot);
/* xw_bounce_done is for a completion that is marked; xw_bounce_land for one that will be polled later. */
void xw_bounce_done(struct ibv_wc *wc);
void xw_bounce_land(const struct ibv_wc *wc);
void xw_cqs_forked(void);
void xw_cqs_land(void); /* has all that completed come back */
void xw_bounce_forget(const void *owner); /* a queue that is destroyed */
void xw_bounce_forked(void);

static inline bool xw_any_bounce(void) { return atomic_load_explicit(&xw_bounces, memory_order_relaxed) != 0; }

/* Of fork: no page is moved from freeze, which says whether any are, to thaw. xw_memory_copy makes all private in a child. */
bool xw_memory_freeze(void);
void xw_memory_thaw(void);
void xw_memory_copy(void);
void xw_sessions_forked(void);
void xw_devices_forked(void);
void xw_watch_forks(void);
extern pthread_mutex_t xw_cm_lock;
int xw_arena(void); /* its memfd: a byte's offset is its address */
