/* rdma_cm: connecting. The session's reader handles the replies of the daemon. */
#include "cm.h"

#include <arpa/inet.h>

/* xw_byte returns a number of a JSON object, at most 255: programs see 8 bits of each connection parameter. */
uint8_t xw_byte(struct json v, const char *key)
{
	uint64_t n = 0;

	json_number(json_get(v, key), &n);
	return n > 255 ? 255 : (uint8_t)n;
}

static uint8_t least(uint8_t a, uint8_t b) { return a < b ? a : b; }

void xw_take_private(struct event *e, struct json v)
{
	int n = json_base64(v, e->private_data, sizeof e->private_data - 1);

	e->cm.param.conn.private_data_len = n > 0 ? (uint8_t)n : 0;
}

/* put_private appends private data as a JSON member: the data of rdma_getaddrinfo, then that of the program. */
static void put_private(char *to, const struct id *id, const void *data, uint8_t n)
{
	uint8_t all[2 * 256];
	size_t length = id->ep_private_len;

	*to = 0;
	if (length)
		memcpy(all, id->ep_private, length);
	if (data && n) {
		memcpy(all + length, data, n);
		length += n;
	}
	if (length) {
		strcpy(to, ",\"private_data\":\"");
		xw_base64(all, length, to + strlen(to));
		strcat(to, "\"");
	}
}

#define PRIVATE_ROOM (XW_BASE64_LEN(2 * 256) + 32)

/* reads returns the number of outstanding Reads and atomics of a connection in one direction: n, the value of the
 * program, or most if n is 255. The minimum is one, for the RTR message (RFC 6581, 9.2). */
static unsigned reads(uint8_t n, uint8_t most)
{
	n = n == 255 ? most : n;
	return n ? n : 1;
}

/* too_deep reports whether more Reads and atomics are requested than a queue pair supports. */
static bool too_deep(const struct rdma_conn_param *p)
{
	return (p->responder_resources > XW_READS && p->responder_resources != RDMA_MAX_RESP_RES) ||
	       (p->initiator_depth > XW_READS && p->initiator_depth != RDMA_MAX_INIT_DEPTH);
}

/* failure_of returns the event for a failed connect or accept. */
static enum rdma_cm_event_type failure_of(int error)
{
	switch (error) {
	case ECONNRESET:
	case ECONNREFUSED: return RDMA_CM_EVENT_REJECTED; /* as the kernel's iWARP does */
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH: return RDMA_CM_EVENT_UNREACHABLE;
	}
	return RDMA_CM_EVENT_CONNECT_ERROR;
}

/* moves_own reports whether the program moves its own queue pair through its states, as with the kernel's RoCE. */
static bool moves_own(const struct id *id) { return xw_roce() && !id->cm.qp; }

/* answered handles the reply to connect and accept. */
static void answered(struct call *c)
{
	struct id *id = c->owner;
	struct event *e = calloc(1, sizeof *e);

	pthread_mutex_lock(&xw_cm_lock);
	if (id->state != CM_CONNECTING || !e) { /* it is being destroyed */
		free(e);
	} else if (c->error) {
		id->state = CM_DOWN;
		xw_take_private(e, json_get(c->failure, "private_data"));
		xw_cm_post(id, &id->cm, failure_of(c->error), -c->error, e);
	} else {
		struct json params = json_get(c->result, "params");
		struct sockaddr_storage a;
		id->state = CM_CONNECTED;
		if (xw_addr_parse(id->s, json_get(c->result, "local"), &a))
			id->cm.route.addr.src_storage = a;
		if (!id->request)
			xw_take_private(e, json_get(params, "PrivateData"));
		/* The peer announces how many Reads it issues, which may be fewer than this end accepts. */
		e->cm.param.conn.responder_resources = least(xw_byte(params, "IRD"), xw_byte(params, "PeerORD"));
		e->cm.param.conn.initiator_depth = xw_byte(params, "ORD");
		/* After CONNECT_RESPONSE the program calls rdma_establish. */
		xw_cm_post(id, &id->cm, moves_own(id) && !id->request ? RDMA_CM_EVENT_CONNECT_RESPONSE : RDMA_CM_EVENT_ESTABLISHED, 0, e);
		if (id->down_early) {
			id->state = CM_DOWN;
			xw_cm_post(id, &id->cm, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		}
	}
	xw_cm_done(id);
	pthread_mutex_unlock(&xw_cm_lock);
	xw_resume_listeners();
}

/* prepare_qp prepares a queue pair for connect or accept. It returns the handle, or 0 if there is no such queue pair or
 * it is in ERR. It moves the queue pair to RTS, unless own is set: then the program does that itself (see
 * moves_own). */
static uint32_t prepare_qp(struct session *s, uint32_t qp_num, bool own)
{
	struct qp *q;

	GUARD(&s->lock);
	for (q = s->qps; q && q->ib.qp_num != qp_num; q = q->next)
		;
	if (!q)
		return 0;
	GUARD(&q->ib.mutex);
	if (q->ib.state == IBV_QPS_ERR)
		return 0;
	q->of_cm = own;
	if (!own)
		xw_qp_becomes(&q->ib, IBV_QPS_RTS);
	return q->ib.handle;
}

/* defaults are the parameters of a program that passes none. */
static struct rdma_conn_param defaults = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH};

/* start reserves an identifier in state from for connect or accept. It sets *qp to the handle of the queue pair. */
static int start(struct id *id, const struct rdma_conn_param *p, enum cm_state from, uint32_t *qp)
{
	if (too_deep(p))
		return xw_fail(EINVAL);
	uint32_t qp_num = id->cm.qp ? id->cm.qp->qp_num : p->qp_num;
	GUARD(&xw_cm_lock);
	if (id->state != from || !id->cm.verbs || !(*qp = prepare_qp(xw_session(id->cm.verbs), qp_num, moves_own(id))))
		return xw_fail(EINVAL);
	id->state = CM_CONNECTING;
	id->qp = *qp;
	xw_cm_pend(id, answered);
	return 0;
}

const char *xw_dscp(const struct id *id, char *room)
{
	*room = 0;
	if (id->dscp)
		snprintf(room, XW_DSCP_ROOM, ",\"dscp\":%d", id->dscp);
	return room;
}

/* PATIENCE is the time in milliseconds during which a refused connect is retried: perftest connects a second time
 * before its server listens again, and exits if refused. */
#define PATIENCE 300

EXPORT int rdma_connect(struct rdma_cm_id *cm, struct rdma_conn_param *p)
{
	struct id *id = xw_id(cm);
	struct sockaddr_storage from = cm->route.addr.src_storage;
	char local[80], remote[80], class[XW_DSCP_ROOM], data[PRIVATE_ROOM];
	uint16_t *port = xw_port((struct sockaddr *)&from), chosen = id->any_port ? ntohs(*port) : 0;
	uint32_t qp;

	p = p ? p : &defaults;
	if (start(id, p, CM_ROUTE, &qp) != 0)
		return -1;
	put_private(data, id, p->private_data, p->private_data_len);
	if (chosen)
		*port = 0;
	xw_addr_text((struct sockaddr *)&from, local, sizeof local);
	xw_addr_text(&cm->route.addr.dst_addr, remote, sizeof remote);
	xw_free_port(id);
	xw_begin(id->s, &id->call, "connect",
		 "{\"qp\":%u,\"local\":\"%s\",\"try_port\":%u,\"remote\":\"%s\",\"patience_ms\":%d,\"ird\":%u,\"ord\":%u%s%s}",
		 qp, local, chosen, remote, PATIENCE, reads(p->responder_resources, XW_READS),
		 reads(p->initiator_depth, XW_READS), xw_dscp(id, class), data);
	return xw_cm_complete(id);
}

/* set_class gives the packets of a queue pair the DSCP of its identifier. */
static int set_class(struct id *id, uint32_t qp)
{
	return xw_ask(id->s, "modify_qp", "{\"handle\":%u,\"dscp\":%d}", qp, id->dscp);
}

/* xw_set_tos ignores the two ECN bits of tos, as Linux does for TCP sockets. */
int xw_set_tos(struct id *id, uint8_t tos)
{
	bool connected = false;

	LOCKED(&xw_cm_lock) {
		id->dscp = tos >> 2 ? tos >> 2 : XW_NO_DSCP;
		connected = id->state == CM_CONNECTED;
	}
	int error = connected ? set_class(id, id->qp) : 0;
	return error ? xw_fail(error) : 0;
}

EXPORT int rdma_accept(struct rdma_cm_id *cm, struct rdma_conn_param *p)
{
	struct id *id = xw_id(cm);
	char data[PRIVATE_ROOM];
	uint32_t qp;

	p = p ? p : &defaults;
	if (start(id, p, CM_REQUEST, &qp) != 0)
		return -1;
	put_private(data, id, p->private_data, p->private_data_len);
	if (id->dscp) /* set on this identifier; otherwise the listener's applies */
		set_class(id, qp);
	xw_begin(id->s, &id->call, "accept", "{\"handle\":%u,\"qp\":%u,\"ird\":%u,\"ord\":%u%s}", id->request, qp,
		 reads(p->responder_resources, least(id->responder, XW_READS)), reads(p->initiator_depth, least(id->depth, XW_READS)), data);
	return xw_cm_complete(id);
}

EXPORT int rdma_reject(struct rdma_cm_id *cm, const void *private_data, uint8_t n)
{
	struct id *id = xw_id(cm);
	char data[PRIVATE_ROOM];

	LOCKED(&xw_cm_lock) {
		if (id->state != CM_REQUEST)
			return xw_fail(EINVAL);
		id->state = CM_DOWN;
	}
	put_private(data, id, private_data, n);
	int error = xw_ask(id->s, "reject", "{\"handle\":%u%s}", id->request, data);
	xw_resume_listeners();
	return error ? xw_fail(error) : 0;
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *cm, const void *private_data, uint8_t n)
{
	return rdma_reject(cm, private_data, n);
}

EXPORT int rdma_disconnect(struct rdma_cm_id *cm)
{
	struct id *id = xw_id(cm);

	pthread_mutex_lock(&xw_cm_lock);
	bool connected = id->state == CM_CONNECTED, over = id->state == CM_DOWN && id->qp;
	if (id->peek.sync && id->cm.event && id->cm.event->event != RDMA_CM_EVENT_ESTABLISHED)
		over = false; /* an earlier synchronous call already returned this event */
	pthread_mutex_unlock(&xw_cm_lock);
	if (!connected && !over)
		return xw_fail(EINVAL);
	if (connected) {
		int error = xw_ask(id->s, "disconnect", "{\"handle\":%u}", id->qp);
		if (error)
			return xw_fail(error);
	}
	return xw_cm_complete(id);
}
