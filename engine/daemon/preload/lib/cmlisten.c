/* rdma_cm: listening. Each address of a wildcard has a listener of its own: the daemon gives all addresses to few. */
#include "cm.h"

#include <ifaddrs.h>
#include <netinet/in.h>

static void requested(struct call *c);

static void next_request(struct listener *l)
{
	l->call.owner = l;
	l->call.done = requested;
	xw_begin(l->s, &l->call, "get_request", "{\"handle\":%u}", l->handle);
}

/* new_request makes the identifier of a peer's request. The lock is held. */
static bool new_request(struct listener *l, struct json r, uint32_t handle)
{
	struct id *of = l->id, *id;
	struct sockaddr_storage local, remote;
	struct event *e = calloc(1, sizeof *e);

	if (!e || !xw_addr_parse(json_get(r, "local"), &local) || !xw_addr_parse(json_get(r, "remote"), &remote) ||
	    !(id = xw_id_new(of->cm.channel, of->cm.context, of->cm.ps))) {
		free(e);
		return false;
	}
	id->state = CM_REQUEST;
	id->request = handle;
	id->s = l->s;
	id->cm.route.addr.src_storage = local;
	id->cm.route.addr.dst_storage = remote;
	id->cm.port_num = 1;
	xw_take_private(e, json_get(r, "private_data"));
	e->cm.param.conn.responder_resources = xw_octet(r, "ord"); /* what the peer may have under way is for us to respond to */
	e->cm.param.conn.initiator_depth = xw_octet(r, "ird");
	id->cm.verbs = l->verbs;
	xw_cm_post(of, &id->cm, RDMA_CM_EVENT_CONNECT_REQUEST, 0, e);
	return true;
}

/* requested takes a peer's request, or the end of the listener. */
static void requested(struct call *c)
{
	struct listener *l = c->owner;
	uint64_t handle = 0;
	bool full = c->error == ENOMEM, over = c->error && !full, taken = false;

	if (!c->error)
		json_number(json_get(c->result, "handle"), &handle);
	pthread_mutex_lock(&xw_cm_lock);
	if (handle && l->id)
		taken = new_request(l, c->result, (uint32_t)handle);
	if (!l->id)
		over = true;
	l->stalled = full && !over; /* until the program has answered a request */
	pthread_mutex_unlock(&xw_cm_lock);
	xw_call_end(c);
	if (handle && !taken)
		xw_reject_async(l->s, (uint32_t)handle);
	if (!over) {
		if (!full)
			next_request(l);
		return;
	}
	pthread_mutex_lock(&xw_cm_lock);
	if (l->id)
		for (struct listener **p = &l->id->listeners; *p; p = &(*p)->next)
			if (*p == l) {
				*p = l->next;
				break;
			}
	pthread_mutex_unlock(&xw_cm_lock);
	free(l);
}

/* xw_resume_listeners goes on with those that were told that too many requests wait. */
void xw_resume_listeners(void)
{
	struct listener *l;

	do {
		pthread_mutex_lock(&xw_cm_lock);
		l = xw_stalled_listener();
		if (l)
			l->stalled = false;
		pthread_mutex_unlock(&xw_cm_lock);
		if (l)
			next_request(l);
	} while (l);
}

void xw_close_listeners(struct id *id)
{
	struct listener *l;

	for (;;) {
		pthread_mutex_lock(&xw_cm_lock);
		l = id->listeners;
		if (l) {
			id->listeners = l->next;
			l->id = NULL;
		}
		bool stalled = l && l->stalled;
		pthread_mutex_unlock(&xw_cm_lock);
		if (!l)
			return;
		struct session *s = l->s;
		uint32_t handle = l->handle; /* the end of its get_request frees l */
		if (stalled)
			free(l);
		xw_ask(s, "close_listener", "{\"handle\":%u}", handle);
	}
}

/* listen_at listens at one address on the device that has it. Port 0 becomes the one that the daemon chose. */
static int listen_at(struct id *id, struct sockaddr *a, int backlog)
{
	struct ibv_device *device = xw_device_at(a);
	struct ibv_context *verbs = device ? xw_cm_context(device) : NULL;
	struct listener *l = verbs ? calloc(1, sizeof *l) : NULL;
	struct sockaddr_storage at;
	struct call c;
	uint64_t handle = 0;
	char text[80];

	if (!l)
		return verbs ? ENOMEM : ENODEV;
	l->id = id;
	l->verbs = verbs;
	l->s = xw_session(verbs);
	xw_addr_text(a, text, sizeof text);
	int error = xw_call(l->s, &c, -1, "listen", "{\"addr\":\"%s\",\"backlog\":%d}", text, backlog);
	if (!error && (!json_number(json_get(c.result, "handle"), &handle) || !xw_addr_parse(json_get(c.result, "addr"), &at)))
		error = EPROTO;
	if (!error)
		*xw_port(a) = *xw_port((struct sockaddr *)&at);
	xw_call_end(&c);
	if (error) {
		free(l);
		return error;
	}
	l->handle = (uint32_t)handle;
	pthread_mutex_lock(&xw_cm_lock);
	l->next = id->listeners;
	id->listeners = l;
	pthread_mutex_unlock(&xw_cm_lock);
	next_request(l);
	return 0;
}

/* listen_everywhere listens at each address of the wildcard's family, and at those of IPv4 too when it may. */
static int listen_everywhere(struct id *id, struct sockaddr *wild, int backlog)
{
	struct ifaddrs *all = NULL;
	int error = EADDRNOTAVAIL, done = 0;

	getifaddrs(&all);
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		bool four = family == AF_INET && (wild->sa_family == AF_INET || !id->afonly);
		struct sockaddr_storage a = {0};
		if (!four && !(family == AF_INET6 && wild->sa_family == AF_INET6))
			continue;
		memcpy(&a, i->ifa_addr, xw_addr_len(i->ifa_addr));
		*xw_port((struct sockaddr *)&a) = *xw_port(wild);
		int e = listen_at(id, (struct sockaddr *)&a, backlog);
		if (e == 0) {
			*xw_port(wild) = *xw_port((struct sockaddr *)&a);
			done++;
		} else if (e != ENODEV) {
			error = e;
		}
	}
	freeifaddrs(all);
	return done ? 0 : error;
}

EXPORT int rdma_listen(struct rdma_cm_id *cm, int backlog)
{
	struct id *id = xw_id(cm);
	struct sockaddr *a = &cm->route.addr.src_addr;

	pthread_mutex_lock(&xw_cm_lock);
	bool right = id->state == CM_BOUND;
	if (right)
		id->state = CM_LISTEN;
	pthread_mutex_unlock(&xw_cm_lock);
	if (!right)
		return xw_fail(EINVAL);
	xw_free_port(id);
	if (backlog <= 0)
		backlog = 128;
	if (backlog > (int)XW_MAX_BACKLOG)
		backlog = (int)XW_MAX_BACKLOG;
	int error = xw_wildcard(a) ? listen_everywhere(id, a, backlog) : listen_at(id, a, backlog);
	if (error) {
		pthread_mutex_lock(&xw_cm_lock);
		id->state = CM_BOUND;
		pthread_mutex_unlock(&xw_cm_lock);
		return xw_fail(error);
	}
	return 0;
}

/* rdma_get_request is for listeners whose calls are synchronous. */
EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct id *id = xw_id(listen);
	struct rdma_cm_event *e;

	if (!id->sync)
		return xw_fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &e) != 0)
		return -1;
	if (e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int error = e->status ? -e->status : EINVAL;
		rdma_ack_cm_event(e);
		return xw_fail(error);
	}
	struct rdma_cm_id *child = e->id;
	struct ibv_qp_init_attr attr = id->ep_attr;
	if ((id->passive_qp && rdma_create_qp(child, id->ep_pd, &attr) != 0) || rdma_migrate_id(child, NULL) != 0) {
		int error = errno;
		rdma_ack_cm_event(e);
		rdma_destroy_ep(child);
		return xw_fail(error);
	}
	listen->event = e; /* its private data stay until the next call */
	child->event = NULL;
	*out = child;
	return 0;
}
