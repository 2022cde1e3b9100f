/* Connections to the daemon, and requests. */
#pragma once
#include "base.h"

/* A session is a connection to the daemon for one device. All contexts of the device share it. */
struct session;
struct call;

/* A call is a request. done runs on the session's reader when the reply arrives. It must not wait for another reply. */
struct call {
	void (*done)(struct call *c);
	void *owner;
	int error;	    /* errno; 0: result is valid */
	struct json result; /* valid in done, or until xw_call_end */
	struct json failure;
	const char *op;
	int files[XW_MAX_FILES];
	int n_files;
	/* Private to the session. */
	uint64_t id;
	struct call *next;
	sem_t ready;
	char *body;
};

struct link { /* a device of the daemon */
	char name[IBV_SYSFS_NAME_MAX - 6];
	char interface[32];
	unsigned ifindex; /* see xw_is_here */
	char netns[32];
	uint8_t mac[6];
	bool kernel; /* kernel transport, which serves all addresses */
	unsigned mtu;
};

/* Limits of the user, as reported by ibv_query_device. */
struct user_limits {
	uint64_t memory; /* bytes of all regions */
	int pds, mrs, cqs, completions, srqs, qps, work_requests;
};

/* A layer uses the session. The session's reader calls its functions. */
struct layer {
	void (*event)(struct session *s, struct json event);
	void (*lost)(struct session *s);     /* NULL, or: the daemon is gone; the session's lock is held */
	void (*orphaned)(struct session *s); /* after lost, if contexts are open */
};

enum { VERBS, CM, N_LAYERS };

struct session {
	_Atomic(const struct layer *) layers[N_LAYERS]; /* NULL: not in use */
	pthread_mutex_t lock; /* guards the mutable fields below, except dead and next */
	int fd;
	atomic_bool dead;
	int refs;
	uint64_t last;
	struct call *calls;
	struct session *next; /* open session of the process */
	struct context *contexts;
	struct qp *qps;
	struct srq *srqs;
	pthread_t reader;
	struct area bell; /* doorbell memory */
	int ring;      /* eventfd of the doorbell */
	struct link link;
	struct link *links; /* all devices of the daemon */
	int n_links;
	struct user_limits limits;
};

/* xw_session_quiet turns off the messages of this thread about a daemon that cannot be reached. */
void xw_session_quiet(void);
struct session *xw_session_open(const char *device, int *error);
struct session *xw_session_get(struct session *s);
void xw_session_put(struct session *s);
/* xw_is_here reports whether the daemon opened a device in the network namespace of this thread. Only there its indexes
 * name the same interfaces. */
bool xw_is_here(const struct link *l);
void xw_read_frames(struct session *s); /* returns when the connection has ended */
/* xw_call sends a request with JSON arguments from format and waits for the reply. It also sends fd unless that is
 * -1. It returns errno. xw_call_end frees the parts of the reply in c. xw_ask is a call without fd whose reply is
 * freed at once. */
int xw_call(struct session *s, struct call *c, int fd, const char *op, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
void xw_call_end(struct call *c);
/* REPLY declares a call that ends with its block. */
#define REPLY(c) struct call c __attribute__((cleanup(xw_call_end))) = {0}
/* xw_destroy asks the daemon to destroy an object. It returns errno, or 0 if the daemon is gone, and the object with
 * it. */
int xw_destroy(struct session *s, const char *op, uint32_t handle);
/* xw_send sends a request whose reply does not matter. */
void xw_send(struct session *s, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* xw_call_explain prints why the daemon refused a request, once per op. */
void xw_call_explain(const struct call *c);
int xw_take_file(struct call *c, int i); /* returns a descriptor of the reply and passes it to the caller */
int xw_ask(struct session *s, const char *op, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* xw_begin is xw_call without waiting: c->done is called when the reply arrives, or at once if the session is dead. */
void xw_begin(struct session *s, struct call *c, const char *op, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void xw_cancel(struct session *s, struct call *c); /* asks the daemon to cancel c, and does not wait */
void xw_sessions_forked(void);
