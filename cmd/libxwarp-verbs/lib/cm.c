/* rdma_cm: event channels, events and identifiers. */
#include "cm.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

pthread_mutex_t xw_cm_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t xw_cm_changed = PTHREAD_COND_INITIALIZER;
static struct id *ids;

static void close_channel(struct event_channel *ch)
{
	if (ch->cm.fd >= 0)
		close(ch->cm.fd);
	if (ch->count >= 0)
		close(ch->count);
	free(ch);
}

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct event_channel *ch = calloc(1, sizeof *ch);

	if (!ch)
		return xw_null(ENOMEM);
	ch->tail = &ch->events;
	ch->count = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	ch->cm.fd = epoll_create1(EPOLL_CLOEXEC);
	if (ch->count < 0 || ch->cm.fd < 0 ||
	    epoll_ctl(ch->cm.fd, EPOLL_CTL_ADD, ch->count, &(struct epoll_event){.events = EPOLLIN}) != 0) {
		int error = errno;
		close_channel(ch);
		return xw_null(error);
	}
	return &ch->cm;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *cm)
{
	struct event_channel *ch = container_of(cm, struct event_channel, cm);
	struct event *e;

	while ((e = ch->events)) {
		ch->events = e->next;
		free(e);
	}
	close_channel(ch);
}

static void append(struct rdma_event_channel *cm, struct event *e)
{
	struct event_channel *ch = container_of(cm, struct event_channel, cm);
	uint64_t one = 1;

	e->next = NULL;
	*ch->tail = e;
	ch->tail = &e->next;
	(void)!write(ch->count, &one, sizeof one);
}

void xw_cm_post(struct id *of, struct rdma_cm_id *about, enum rdma_cm_event_type type, int status, struct event *e)
{
	if (!e)
		e = calloc(1, sizeof *e);
	if (!e)
		return;
	e->of = of;
	e->cm.id = about;
	e->cm.listen_id = about == &of->cm ? NULL : &of->cm;
	e->cm.event = type;
	e->cm.status = status;
	if (e->cm.param.conn.private_data_len)
		e->cm.param.conn.private_data = e->private_data;
	append(of->cm.channel, e);
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *cm, struct rdma_cm_event **out)
{
	struct event_channel *ch = container_of(cm, struct event_channel, cm);
	struct event *e;

	do {
		if (!xw_uncount(ch->count, !(fcntl(cm->fd, F_GETFL) & O_NONBLOCK)))
			return -1;
		GUARD(&xw_cm_lock);
		e = ch->events;
		if (e) {
			if (!(ch->events = e->next))
				ch->tail = &ch->events;
			e->of->delivered++;
		}
	} while (!e); /* the events were removed with their identifier */
	*out = &e->cm;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct event *e = container_of(event, struct event, cm);

	LOCKED(&xw_cm_lock) {
		e->of->acked++;
		pthread_cond_broadcast(&xw_cm_changed);
	}
	free(e);
	return 0;
}

/* extract removes the events of an identifier from its channel and returns them as a list. */
static struct event *extract(struct id *id)
{
	struct event_channel *ch = container_of(id->cm.channel, struct event_channel, cm);
	struct event *list = NULL, **tail = &list, **p = &ch->events;

	while (*p) {
		struct event *e = *p;
		if (e->of != id) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		xw_uncount(ch->count, false);
		e->next = NULL;
		*tail = e;
		tail = &e->next;
	}
	ch->tail = p;
	return list;
}

/* fake_device replaces the device structure of librdmacm. rsockets read only the work queue length from it; every int
 * has that value, so that its offset, which depends on the version, does not matter. */
static const int fake_device[64] = {[0 ... 63] = XW_MAX_DEPTH};

struct id *xw_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps)
{
	struct id *id = calloc(1, sizeof *id);

	if (!id)
		return NULL;
	id->cm.channel = channel;
	id->cm.context = context;
	id->cm.ps = ps;
	id->cm.qp_type = IBV_QPT_RC;
	id->reserved = -1;
	id->peek.device = fake_device;
	LINK(ids, id);
	return id;
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps)
{
	bool sync = channel == NULL;
	struct id *id;

	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB)
		return xw_fail(xw_refused("port spaces other than RDMA_PS_TCP (iWARP has no datagrams)"));
	if (sync && !(channel = rdma_create_event_channel()))
		return -1;
	LOCKED(&xw_cm_lock)
		if ((id = xw_id_new(channel, context, ps)))
			id->peek.sync = sync;
	if (!id) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return xw_fail(ENOMEM);
	}
	*out = &id->cm;
	return 0;
}

void xw_cm_pend(struct id *id, void (*done)(struct call *c))
{
	id->s = xw_session(id->cm.verbs);
	id->pending = true;
	id->call.owner = id;
	id->call.done = done;
}

void xw_cm_done(struct id *id)
{
	xw_call_end(&id->call);
	id->pending = false;
	pthread_cond_broadcast(&xw_cm_changed);
}

void xw_cm_settle(struct id *id)
{
	while (id->pending) {
		pthread_mutex_unlock(&xw_cm_lock);
		xw_cancel(id->s, &id->call);
		pthread_mutex_lock(&xw_cm_lock);
		if (id->pending)
			pthread_cond_wait(&xw_cm_changed, &xw_cm_lock);
	}
}

/* quiet cancels the requests of an identifier and waits until no other thread uses it. The lock must be held. */
static void quiet(struct id *id)
{
	struct session *s = id->s;
	bool connected = id->state == CM_CONNECTED, asked = id->state == CM_REQUEST;

	id->state = CM_DOWN;
	id->removed = true; /* no more events are posted */
	while (xw_relistens(id))
		pthread_cond_wait(&xw_cm_changed, &xw_cm_lock);
	pthread_mutex_unlock(&xw_cm_lock);
	xw_close_listeners(id);
	if (connected)
		xw_ask(s, "disconnect", "{\"handle\":%u}", id->qp);
	if (asked)
		xw_send(s, "reject", "{\"handle\":%u}", id->request);
	pthread_mutex_lock(&xw_cm_lock);
	xw_cm_settle(id);
}

void xw_cm_drop_event(struct rdma_cm_id *cm)
{
	struct rdma_cm_event *last = cm->event;

	cm->event = NULL;
	if (last)
		rdma_ack_cm_event(last);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *cm)
{
	struct id *id = xw_id(cm);
	struct event *list;

	xw_cm_drop_event(cm);
	LOCKED(&xw_cm_lock) {
		quiet(id);
		list = extract(id);
		while (id->acked != id->delivered)
			pthread_cond_wait(&xw_cm_changed, &xw_cm_lock);
		UNLINK(ids, id);
	}
	while (list) {
		struct event *e = list;
		list = e->next;
		if (e->cm.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			rdma_destroy_id(e->cm.id);
		free(e);
	}
	if (id->peek.sync)
		rdma_destroy_event_channel(cm->channel);
	xw_free_port(id);
	free(id->ep_private);
	free(id);
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *cm, struct rdma_event_channel *channel)
{
	struct id *id = xw_id(cm);
	bool sync = channel == NULL;

	if (sync && !(channel = rdma_create_event_channel()))
		return -1;
	xw_cm_drop_event(cm);
	struct rdma_event_channel *old = id->peek.sync ? cm->channel : NULL;
	LOCKED(&xw_cm_lock) {
		struct event *list = extract(id);
		cm->channel = channel;
		id->peek.sync = sync;
		while (list) {
			struct event *e = list;
			list = e->next;
			append(channel, e);
		}
	}
	if (old)
		rdma_destroy_event_channel(old);
	return 0;
}

/* xw_cm_complete waits for the event of a synchronous call, and leaves it in cm.event. */
int xw_cm_complete(struct id *id)
{
	struct rdma_cm_event *e;

	if (!id->peek.sync)
		return 0;
	xw_cm_drop_event(&id->cm);
	if (rdma_get_cm_event(id->cm.channel, &e) != 0)
		return -1;
	id->cm.event = e;
	if (e->event == RDMA_CM_EVENT_REJECTED)
		return xw_fail(ECONNREFUSED);
	return e->status ? xw_fail(e->status < 0 ? -e->status : e->status) : 0;
}

EXPORT int rdma_set_option(struct rdma_cm_id *cm, int level, int name, void *value, size_t length)
{
	if (level == RDMA_OPTION_IB)
		return xw_fail(xw_refused("paths of InfiniBand (RDMA_OPTION_IB)"));
	if (level != RDMA_OPTION_ID)
		return xw_fail(ENOSYS);
	switch (name) {
	case RDMA_OPTION_ID_AFONLY:
		if (length != sizeof(int))
			return xw_fail(EINVAL);
		xw_id(cm)->afonly = *(int *)value != 0;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR: /* the daemon sets this option for all programs */
		return length == sizeof(int) ? 0 : xw_fail(EINVAL);
	case RDMA_OPTION_ID_TOS:
		if (length == sizeof(uint8_t))
			return xw_set_tos(xw_id(cm), *(uint8_t *)value);
		if (xw_first_time(__func__) || xw_debug())
			xw_warn("rdma_set_option: RDMA_OPTION_ID_TOS has %zu bytes: it needs one, 0 to 255", length);
		return xw_fail(EINVAL);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return length == sizeof(uint8_t) ? 0 : xw_fail(EINVAL);
	}
	return xw_fail(ENOSYS);
}

EXPORT int rdma_establish(struct rdma_cm_id *cm) { return cm ? 0 : xw_fail(EINVAL); }

EXPORT int rdma_notify(struct rdma_cm_id *cm, enum ibv_event_type event)
{
	(void)cm, (void)event;
	return 0;
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *cm) { return *xw_port(&cm->route.addr.src_addr); }
EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *cm) { return *xw_port(&cm->route.addr.dst_addr); }

/* down handles the end of a connection. The daemon logs the cause; RDMA_CM_EVENT_DISCONNECTED has none. */
static void down(struct session *s, uint32_t qp)
{
	GUARD(&xw_cm_lock);
	for (struct id *id = ids; id; id = id->next) {
		if (id->s != s || id->qp != qp)
			continue;
		if (id->state == CM_CONNECTING) {
			id->down_early = true;
		} else if (id->state == CM_CONNECTED) {
			id->state = CM_DOWN;
			xw_cm_post(id, &id->cm, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		}
	}
}

/* gone posts DEVICE_REMOVAL to all identifiers of a session when the daemon is gone or begins to stop, as the
 * kernel does when a NIC is removed. It is their last event. Those that listen without a device listen again when the
 * daemon is back. */
static void gone(struct session *s)
{
	GUARD(&xw_cm_lock);
	for (struct id *id = ids; id; id = id->next) {
		xw_listeners_lost(id, s);
		if (id->cm.verbs && xw_session(id->cm.verbs) == s && !id->removed) {
			id->removed = true;
			id->state = CM_DOWN;
			xw_cm_post(id, &id->cm, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL);
		}
	}
}

static void on_event(struct session *s, struct json e)
{
	struct json name = json_get(e, "event");
	uint32_t qp;

	if (json_is(name, "qp_down") && json_u32(e, "qp", &qp))
		down(s, qp);
	else if (json_is(name, "stopping"))
		gone(s); /* before the ends of connections, as when a NIC is removed */
}

const struct layer xw_cm_layer = {.event = on_event, .orphaned = gone};

struct id *xw_lost_id(unsigned round)
{
	for (struct id *id = ids; id; id = id->next)
		if (id->lost && id->backlog && id->state == CM_LISTEN && (round == 0 || id->round != round))
			return id;
	return NULL;
}

struct listener *xw_stalled_listener(void)
{
	for (struct id *id = ids; id; id = id->next)
		for (struct listener *l = id->listeners; l; l = l->next)
			if (l->stalled)
				return l;
	return NULL;
}
