/* Connections to the daemon, and requests. */
#pragma once
#include "base.h"

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
void xw_sessions_forked(void);

/* The layers above define these, in above.c. The reader calls xw_on_event, and xw_on_orphaned when the daemon is gone while
 * contexts are open. xw_on_lost comes before, with the session's lock held. */
void xw_on_event(struct session *s, struct json event);
void xw_on_lost(struct session *s);
void xw_on_orphaned(struct session *s);
void xw_watch_forks(void);
