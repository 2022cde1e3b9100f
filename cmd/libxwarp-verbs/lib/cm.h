/* Declarations shared by the files of rdma_cm. */
#pragma once
#include "objects.h"

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_RESOLVING,
	CM_ADDR,
	CM_ROUTE,
	CM_LISTEN,
	CM_REQUEST, /* a peer's request, not yet accepted or rejected */
	CM_CONNECTING,
	CM_CONNECTED,
	CM_DOWN,
};

struct event {
	struct rdma_cm_event cm;
	struct id *of; /* identifier of the event; for a connection request, the listener */
	struct event *next;
	uint8_t private_data[256];
};

struct event_channel {
	struct rdma_event_channel cm; /* an epoll descriptor of count: it rejects commands for the kernel */
	int count;		      /* an eventfd that counts the events */
	struct event *events, **tail;
};

struct listener;

/* peek is the part of librdmacm's structure behind an rdma_cm_id that rsockets read through functions that cannot be
 * preloaded (tested with version 44; the same in versions 28 to 64). */
struct peek {
	const int *device; /* one of its ints is the maximum work queue length */
	void *connect;
	size_t connect_len;
	int events_completed, connect_error;
	int sync; /* calls are synchronous, on the identifier's own channel */
};

/* id is an rdma_cm_id. xw_cm_lock guards all identifiers. */
struct id {
	struct rdma_cm_id cm;
	struct peek peek; /* must be at this offset */
	char theirs[1024]; /* space for members that functions of a newer librdmacm use */
	struct id *next;
	enum cm_state state;
	bool afonly;
	int reserved;	/* socket that reserves the port of rdma_bind_addr until listen or connect; -1: none */
	bool any_port;	/* rdma_bind_addr had port 0 */
	bool pending;	/* call is pending */
	bool down_early; /* the queue pair went down before the reply to connect or accept */
	bool removed;	/* DEVICE_REMOVAL was posted */
	bool lost;	/* listeners were lost with the daemon; relisten opens them again */
	unsigned round;	/* last round of relisten that tried this identifier */
	int backlog;	/* of rdma_listen; 0: it has not returned yet */
	uint32_t qp;	/* connected queue pair */
	uint32_t request;
	int dscp; /* of rdma_set_option; 0: none, XW_NO_DSCP: zero */
	uint8_t responder, depth; /* responder_resources and initiator_depth of a peer's request */
	struct session *s; /* session of request and qp */
	struct listener *listeners;
	struct call call;
	unsigned delivered, acked; /* events */
	/* For rdma_create_ep. */
	bool passive_qp;
	struct ibv_qp_init_attr ep_attr;
	void *ep_private;
	uint8_t ep_private_len;
};

/* listener is one listening address of an identifier. Its call is get_request. xw_cm_lock guards its mutable fields. */
struct listener {
	unsigned refs; /* references: of the identifier's list or of the thread that removed it, and of a pending get_request */
	struct id *id; /* NULL: closed */
	struct session *s;
	struct ibv_context *verbs;
	struct sockaddr_storage at; /* the address */
	uint32_t handle;
	bool stalled; /* no get_request is pending */
	bool lost;    /* the daemon closed it: relisten opens another one at the address */
	struct call call;
	struct listener *next;
};

extern pthread_mutex_t xw_cm_lock;
extern pthread_cond_t xw_cm_changed;

static inline struct id *xw_id(struct rdma_cm_id *cm) { return container_of(cm, struct id, cm); }

/* xw_id_new and xw_cm_post require the lock. xw_cm_post takes ownership of e. */
struct id *xw_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
void xw_cm_post(struct id *of, struct rdma_cm_id *about, enum rdma_cm_event_type type, int status, struct event *e);

#define XW_NO_DSCP (-1)
#define XW_DSCP_ROOM 24
const char *xw_dscp(const struct id *id, char *room); /* a JSON member, or "" */
int xw_set_tos(struct id *id, uint8_t tos); /* for the connection or the listeners of an identifier */
/* xw_cm_pend prepares the call of an identifier, which is pending until done ends it. Both require the lock. */
void xw_cm_pend(struct id *id, void (*done)(struct call *c));
void xw_cm_done(struct id *id);
void xw_cm_settle(struct id *id); /* cancels the pending call and waits for its end; the lock must be held */
void xw_cm_drop_event(struct rdma_cm_id *cm); /* acknowledges the event of the last synchronous call */
int xw_cm_complete(struct id *id); /* waits for the event of a synchronous call */
int xw_bind_device(struct id *id, const struct sockaddr *local, bool any);
struct ibv_context *xw_cm_context(struct ibv_device *device); /* NULL for no device */
static inline void xw_cm_use(struct id *id, struct ibv_context *verbs) /* verbs is a context of xw_cm_context */
{
	id->cm.verbs = verbs;
	id->cm.pd = xw_context(verbs)->pd;
	id->cm.port_num = 1;
}
bool xw_wildcard(const struct sockaddr *a);
socklen_t xw_addr_len(const struct sockaddr *a);
void xw_addr_text(const struct sockaddr *a, char *to, size_t room);
bool xw_addr_parse(const struct session *s, struct json v, struct sockaddr_storage *a); /* from the daemon of s */
uint16_t *xw_port(struct sockaddr *a);
void xw_free_port(struct id *id); /* closes reserved */
void xw_close_listeners(struct id *id);
void xw_resume_listeners(void);
void xw_listeners_lost(struct id *id, struct session *s); /* the session is dead; the lock must be held */
/* xw_lost_id returns an identifier with lost listeners that was not tried in this round, or NULL. Round 0 stands for
 * none: then it may return any identifier with lost listeners. The lock must be held. */
struct id *xw_lost_id(unsigned round);
bool xw_relistens(const struct id *id); /* another thread opens its listeners; the lock must be held */
void xw_cm_forked(void);
void xw_cm_contexts_forked(void);
struct listener *xw_stalled_listener(void); /* of any identifier; the lock must be held */
uint8_t xw_byte(struct json v, const char *key);
void xw_take_private(struct event *e, struct json v);
extern const struct layer xw_cm_layer;
