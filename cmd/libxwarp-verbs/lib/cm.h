/* What the files of rdma_cm share. */
#pragma once
#include "objects.h"

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_RESOLVING,
	CM_ADDR,
	CM_ROUTE,
	CM_LISTEN,
	CM_REQUEST, /* a peer's, to be accepted or rejected */
	CM_CONNECTING,
	CM_CONNECTED,
	CM_DOWN,
};

struct event {
	struct rdma_cm_event cm;
	struct id *of; /* whose it is: the listener's for a connection request */
	struct event *next;
	uint8_t private_data[256];
};

struct event_channel {
	struct rdma_event_channel cm; /* an eventfd that counts the events */
	struct event *events, **tail;
};

struct listener;

/* peek is what the rsockets of librdmacm read behind an rdma_cm_id by functions that cannot be preloaded: the beginning of the
 * structure that librdmacm has there (tried with version 44; versions 28 to 64 have the same). */
struct peek {
	const int *device; /* one of its ints is the longest work queue */
	void *connect;
	size_t connect_len;
	int events_completed, connect_error;
	int sync; /* calls wait for their events, on a channel of the identifier's own */
};

/* id is an rdma_cm_id. xw_cm_lock guards all of them. */
struct id {
	struct rdma_cm_id cm;
	struct peek peek; /* must be here */
	struct id *next;
	enum cm_state state;
	bool afonly;
	int reserved;	/* a socket that holds the port of rdma_bind_addr until listen or connect; -1: none */
	bool any_port;	/* rdma_bind_addr was asked for port 0 */
	bool pending;	/* call is under way */
	bool down_early; /* the queue pair was down before the answer to connect or accept */
	bool removed;	/* DEVICE_REMOVAL was told */
	uint32_t qp;	/* that is connected */
	uint32_t request;
	uint8_t responder, depth; /* responder_resources and initiator_depth of a peer's request */
	struct session *s; /* of request, qp */
	struct listener *listeners;
	struct call call;
	unsigned delivered, acked; /* events */
	/* Of rdma_create_ep. */
	bool passive_qp;
	struct ibv_qp_init_attr ep_attr;
	void *ep_private;
	uint8_t ep_private_len;
};

/* listener is one address of an identifier that listens; its call is get_request. xw_cm_lock guards all of it that changes. */
struct listener {
	unsigned refs; /* the identifier's list, or whoever took it off; and a get_request that is under way or about to be */
	struct id *id; /* NULL: closed */
	struct session *s;
	struct ibv_context *verbs;
	uint32_t handle;
	bool stalled; /* no get_request is under way */
	struct call call;
	struct listener *next;
};

extern pthread_mutex_t xw_cm_lock;
extern pthread_cond_t xw_cm_changed;

static inline struct id *xw_id(struct rdma_cm_id *cm) { return container_of(cm, struct id, cm); }

/* Both are called with the lock held. xw_cm_post takes e over. */
struct id *xw_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
void xw_cm_post(struct id *of, struct rdma_cm_id *about, enum rdma_cm_event_type type, int status, struct event *e);

int xw_cm_complete(struct id *id); /* a synchronous call waits for its event */
int xw_bind_device(struct id *id, const struct sockaddr *local, bool any);
struct ibv_context *xw_cm_context(struct ibv_device *device);
static inline void xw_cm_use(struct id *id, struct ibv_context *verbs) /* a context of xw_cm_context */
{
	id->cm.verbs = verbs;
	id->cm.pd = xw_context(verbs)->pd;
	id->cm.port_num = 1;
}
bool xw_wildcard(const struct sockaddr *a);
socklen_t xw_addr_len(const struct sockaddr *a);
void xw_addr_text(const struct sockaddr *a, char *to, size_t room);
bool xw_addr_parse(struct json v, struct sockaddr_storage *a);
uint16_t *xw_port(struct sockaddr *a);
void xw_free_port(struct id *id); /* of reserved */
void xw_close_listeners(struct id *id);
void xw_resume_listeners(void);
struct listener *xw_stalled_listener(void); /* of any identifier; the lock is held */
uint8_t xw_byte(struct json v, const char *key);
void xw_take_private(struct event *e, struct json v);
void xw_reject_async(struct session *s, uint32_t request);
void xw_cm_down(struct session *s, uint32_t qp); /* a connection ended */
void xw_cm_gone(struct session *s);		   /* the daemon is gone */
