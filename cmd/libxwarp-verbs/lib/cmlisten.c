/* rdma_cm: listening. Each address of a wildcard has its own listener, because the daemon allows few users to listen
 * on all addresses. */
#include "cm.h"

#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <time.h>

static void requested(struct call *c);

static void next_request(struct listener *l)
{
	l->call.owner = l;
	l->call.done = requested;
	xw_begin(l->s, &l->call, "get_request", "{\"handle\":%u}", l->handle);
}

/* new_request creates the identifier of a peer's request. The lock must be held. */
static bool new_request(struct listener *l, struct json r, uint32_t handle)
{
	struct id *of = l->id, *id;
	struct sockaddr_storage local, remote;
	struct event *e = calloc(1, sizeof *e);

	if (!e || !xw_addr_parse(l->s, json_get(r, "local"), &local) || !xw_addr_parse(l->s, json_get(r, "remote"), &remote) ||
	    !(id = xw_id_new(of->cm.channel, of->cm.context, of->cm.ps))) {
		free(e);
		return false;
	}
	id->state = CM_REQUEST;
	id->request = handle;
	id->s = l->s;
	id->cm.route.addr.src_storage = local;
	id->cm.route.addr.dst_storage = remote;
	xw_take_private(e, json_get(r, "private_data"));
	/* The peer's outstanding requests are those that this end responds to. */
	e->cm.param.conn.responder_resources = id->responder = xw_byte(r, "ord");
	e->cm.param.conn.initiator_depth = id->depth = xw_byte(r, "ird");
	xw_cm_use(id, l->verbs);
	xw_cm_post(of, &id->cm, RDMA_CM_EVENT_CONNECT_REQUEST, 0, e);
	return true;
}

/* release drops a reference. The last one frees the listener. The lock must be held. */
static void release(struct listener *l)
{
	if (--l->refs == 0)
		free(l);
}

/* unlist removes a listener from its identifier and passes the reference to the caller. The lock must be held. */
static void unlist(struct listener *l)
{
	UNLINK(l->id->listeners, l);
	l->id = NULL;
}

/* PAUSE is the time before the first attempt of relisten in milliseconds. It grows to MAX_PAUSE, because an address may
 * never come back. */
enum { PAUSE = 200, MAX_PAUSE = 1000 };

/* Guarded by xw_cm_lock. */
static bool running;	   /* a thread runs relisten */
static struct id *current; /* identifier that this thread uses; NULL: none */
static long pause_ms;	   /* before its next attempt */

static void *relisten(void *unused);

/* listen_later starts relisten for an identifier that has lost a listener. The lock must be held. */
static void listen_later(struct id *id)
{
	sigset_t all, before;
	pthread_t thread;

	id->lost = true;
	pause_ms = PAUSE;
	if (running)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by threads of the program */
	running = pthread_create(&thread, NULL, relisten, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (running)
		pthread_detach(thread);
}

/* lost notes that the daemon has closed a listener. An identifier with a device gets DEVICE_REMOVAL, the others listen
 * again. The lock must be held. */
static void lost(struct listener *l)
{
	l->lost = true;
	l->stalled = false;
	if (!l->id->cm.verbs)
		listen_later(l->id);
}

void xw_cm_forked(void)
{
	pthread_mutex_init(&xw_cm_lock, NULL); /* its holder and the waiting threads do not exist in the child */
	pthread_cond_init(&xw_cm_changed, NULL);
	running = false;
	current = NULL;
	for (struct id *id; (id = xw_lost_id(0));)
		id->lost = false; /* the parent listens again */
}

bool xw_relistens(const struct id *id) { return current == id; }

/* xw_listeners_lost notes the loss of the listeners of a session that have no pending call, which would note it. */
void xw_listeners_lost(struct id *id, struct session *s)
{
	for (struct listener *l = id->listeners; l; l = l->next)
		if (l->s == s && l->stalled)
			lost(l);
}

/* requested handles a peer's request or the end of the listener. The call's reference passes to the next
 * get_request, or is dropped. */
static void requested(struct call *c)
{
	struct listener *l = c->owner;
	uint32_t handle = 0;
	bool full = c->error == ENOMEM, taken = false;

	if (!c->error)
		json_u32(c->result, "handle", &handle);
	LOCKED(&xw_cm_lock)
		taken = handle && l->id && new_request(l, c->result, handle);
	if (handle && !taken)
		xw_send(l->s, "reject", "{\"handle\":%u}", handle); /* if memory is short, it times out in the daemon */
	int error = c->error;
	xw_call_end(c);
	LOCKED(&xw_cm_lock) {
		l->stalled = l->id && full; /* until the program has accepted or rejected a request */
		if (l->id && error && !full)
			lost(l);
		if (!l->id || error) {
			release(l);
			return;
		}
	}
	next_request(l);
}

/* xw_resume_listeners restarts listeners that stalled because too many requests were waiting. */
void xw_resume_listeners(void)
{
	struct listener *l;

	for (;;) {
		LOCKED(&xw_cm_lock) {
			if (!(l = xw_stalled_listener()))
				return;
			l->stalled = false;
			l->refs++;
		}
		next_request(l);
	}
}

/* xw_close_listeners closes the listeners of an identifier in the daemon, which ends their get_request. */
void xw_close_listeners(struct id *id)
{
	struct listener *l;

	for (;;) {
		LOCKED(&xw_cm_lock) {
			if (!(l = id->listeners))
				return;
			unlist(l);
		}
		if (!l->lost)
			xw_ask(l->s, "close_listener", "{\"handle\":%u}", l->handle);
		LOCKED(&xw_cm_lock)
			release(l);
	}
}

/* listener_at returns the listener of an identifier at an address, or NULL. The lock must be held. */
static struct listener *listener_at(struct id *id, const struct sockaddr *a)
{
	struct listener *l = id->listeners;

	while (l && !xw_same_address((struct sockaddr *)&l->at, a))
		l = l->next;
	return l;
}

/* listen_at listens on one address on its device, in place of a lost listener. Port 0 becomes the port that the daemon
 * chose. */
static int listen_at(struct id *id, struct sockaddr *a, int backlog)
{
	struct ibv_context *verbs = xw_cm_context(xw_device_at(a, true));
	struct listener *l = verbs ? calloc(1, sizeof *l) : NULL;
	struct sockaddr_storage at;
	char text[80], class[XW_DSCP_ROOM];
	REPLY(c);

	if (!l)
		return verbs ? ENOMEM : errno ? errno : ENODEV;
	l->id = id;
	l->verbs = verbs;
	l->s = xw_session(verbs);
	memcpy(&l->at, a, xw_addr_len(a));
	xw_addr_text(a, text, sizeof text);
	int error = xw_call(l->s, &c, -1, "listen", "{\"addr\":\"%s\",\"backlog\":%d%s}", text, backlog, xw_dscp(id, class));
	if (!error && (!json_u32(c.result, "handle", &l->handle) || !xw_addr_parse(l->s, json_get(c.result, "addr"), &at)))
		error = EPROTO;
	if (error) {
		free(l);
		return error;
	}
	*xw_port(a) = *xw_port((struct sockaddr *)&at);
	l->refs = 2; /* one of the identifier, one of the call */
	LOCKED(&xw_cm_lock) {
		struct listener *before = listener_at(id, a);
		if (before && before->lost) {
			unlist(before);
			release(before);
		}
		LINK(id->listeners, l);
	}
	next_request(l);
	return 0;
}

/* listens reports whether an identifier listens on an address. */
static bool listens(struct id *id, const struct sockaddr *a)
{
	GUARD(&xw_cm_lock);
	struct listener *l = listener_at(id, a);
	return l && !l->lost;
}

/* listen_everywhere listens on each address of the wildcard's family, and for a dual-stack wildcard also on IPv4,
 * except where it listens already. If again is not set and another program has the port on one address, it listens
 * on none. Loopback addresses come last: the perftest client connects to the second listener of its server without
 * waiting for it. */
static int listen_everywhere(struct id *id, struct sockaddr *wild, int backlog, bool again)
{
	struct ifaddrs *all = NULL;
	int error = EADDRNOTAVAIL, done = 0;
	bool in_use = false;

	getifaddrs(&all);
	for (int loopback = 0; loopback < 2; loopback++)
		for (struct ifaddrs *i = all; i; i = i->ifa_next) {
			int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
			bool four = family == AF_INET && (wild->sa_family == AF_INET || !id->afonly);
			struct sockaddr_storage a = {0};
			if (!four && !(family == AF_INET6 && wild->sa_family == AF_INET6))
				continue;
			if (xw_loopback(i->ifa_addr) != loopback)
				continue;
			memcpy(&a, i->ifa_addr, xw_addr_len(i->ifa_addr));
			*xw_port((struct sockaddr *)&a) = *xw_port(wild);
			int e = again && listens(id, (struct sockaddr *)&a) ? 0 : listen_at(id, (struct sockaddr *)&a, backlog);
			if (e == 0) {
				*xw_port(wild) = *xw_port((struct sockaddr *)&a);
				done++;
			} else if (e != ENODEV && (!again || e != EADDRNOTAVAIL)) {
				error = e;
				in_use |= e == EADDRINUSE;
				if (e == EIO || e == ECONNABORTED) /* the connection to the daemon broke: tried again later */
					LOCKED(&xw_cm_lock)
						id->lost = true;
			}
		}
	freeifaddrs(all);
	if (again)
		return done && error == EADDRNOTAVAIL ? 0 : error;
	if (in_use)
		xw_close_listeners(id);
	return done && !in_use ? 0 : error;
}

/* give_up tells the program that the daemon that came back is of another version. The lock must be held. */
static void give_up(struct id *id)
{
	id->lost = false;
	id->removed = true;
	id->state = CM_DOWN;
	xw_cm_post(id, &id->cm, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL);
}

/* listen_again opens the lost listeners of an identifier, and those of other addresses of a wildcard. The identifier
 * stays lost until it listens at all its former addresses: that of a device that is absent, or opened later than
 * others, is added later. The lock must be held, and is released meanwhile. */
static void listen_again(struct id *id)
{
	struct sockaddr_storage copy = id->cm.route.addr.src_storage;
	struct sockaddr *a = (struct sockaddr *)&copy;
	char text[80];

	id->lost = false;
	current = id;
	pthread_mutex_unlock(&xw_cm_lock);
	int error = xw_wildcard(a) ? listen_everywhere(id, a, id->backlog, true) : listen_at(id, a, id->backlog);
	xw_addr_text(a, text, sizeof text);
	bool gone = error == ENODEV || error == EIO || error == ECONNABORTED; /* the daemon is gone again, or stops */
	if (error && !gone && xw_first_time(__func__))
		xw_warn("xwarpd is back, but this program cannot listen on %s again: %s (it tries until it can)", text, strerror(error));
	pthread_mutex_lock(&xw_cm_lock);
	current = NULL;
	id->lost |= error != 0;
	for (struct listener *l = id->listeners; l; l = l->next)
		id->lost |= l->lost;
	pthread_cond_broadcast(&xw_cm_changed);
}

/* relisten opens lost listeners when the daemon is back, as the kernel does when a device is back. */
static void *relisten(void *unused)
{
	(void)unused;
	xw_session_quiet();
	GUARD(&xw_cm_lock);
	for (unsigned round = 1; running; round = round == UINT_MAX ? 1 : round + 1) {
		int devices;
		struct id *id;
		struct timespec pause = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000};
		pause_ms = pause_ms + PAUSE < MAX_PAUSE ? pause_ms + PAUSE : MAX_PAUSE;
		pthread_mutex_unlock(&xw_cm_lock);
		nanosleep(&pause, NULL);
		errno = 0;
		ibv_free_device_list(ibv_get_device_list(&devices));
		bool refused = devices == 0 && errno == EPROTONOSUPPORT;
		pthread_mutex_lock(&xw_cm_lock);
		while ((devices > 0 || refused) && (id = xw_lost_id(round))) {
			id->round = round;
			if (refused)
				give_up(id);
			else
				listen_again(id);
		}
		running = xw_lost_id(0) != NULL; /* of any round */
	}
	return NULL;
}

EXPORT int rdma_listen(struct rdma_cm_id *cm, int backlog)
{
	struct id *id = xw_id(cm);
	struct sockaddr *a = &cm->route.addr.src_addr;

	LOCKED(&xw_cm_lock) {
		if (id->state != CM_BOUND && id->state != CM_IDLE)
			return xw_fail(EINVAL);
		if (id->state == CM_IDLE) /* the kernel binds an unbound identifier to any port of all IPv4 addresses */
			a->sa_family = AF_INET;
		id->state = CM_LISTEN;
	}
	xw_free_port(id);
	if (backlog <= 0 || backlog > (int)XW_MAX_BACKLOG) /* as the kernel does */
		backlog = (int)XW_MAX_BACKLOG;
	int error = xw_wildcard(a) ? listen_everywhere(id, a, backlog, false) : listen_at(id, a, backlog);
	GUARD(&xw_cm_lock);
	if (error) {
		id->state = CM_BOUND;
		id->lost = false;
		return xw_fail(error);
	}
	id->backlog = backlog;
	if (id->lost) /* in the meantime */
		listen_later(id);
	return 0;
}

/* rdma_get_request is for listeners with synchronous calls. */
EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct id *id = xw_id(listen);
	struct rdma_cm_event *e;

	if (!id->peek.sync)
		return xw_fail(EINVAL);
	xw_cm_drop_event(listen);
	if (rdma_get_cm_event(listen->channel, &e) != 0)
		return -1;
	if (e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int error = e->status ? -e->status : EINVAL;
		rdma_ack_cm_event(e);
		return xw_fail(error);
	}
	struct rdma_cm_id *child = e->id;
	struct ibv_qp_init_attr attr = id->ep_attr;
	if ((id->passive_qp && rdma_create_qp(child, listen->pd, &attr) != 0) || rdma_migrate_id(child, NULL) != 0) {
		int error = errno;
		rdma_ack_cm_event(e);
		rdma_destroy_ep(child);
		return xw_fail(error);
	}
	/* Until the request is answered, its event belongs to the new identifier, and the listener need not wait for
	 * it. */
	GUARD(&xw_cm_lock);
	container_of(e, struct event, cm)->of = xw_id(child);
	xw_id(child)->delivered++;
	id->acked++;
	pthread_cond_broadcast(&xw_cm_changed);
	child->event = e;
	*out = child;
	return 0;
}
