/* rdma_cm: connecting. Answers of the daemon come on its session's reader. */
#include "cm.h"

/* Of a connection's parameters the daemon's are in the answer; programs see 8 bits of each. */
uint8_t xw_octet(struct json v, const char *key)
{
	uint64_t n = 0;

	json_number(json_get(v, key), &n);
	return n > 255 ? 255 : (uint8_t)n;
}

void xw_take_private(struct event *e, struct json v)
{
	int n = json_base64(v, e->private_data, sizeof e->private_data - 1);

	e->cm.param.conn.private_data_len = n > 0 ? (uint8_t)n : 0;
}

/* put_private appends the private data of a request as a member; room is 4 * 256 at least. */
static void put_private(char *to, const void *data, uint8_t n)
{
	*to = 0;
	if (data && n) {
		strcpy(to, ",\"private_data\":\"");
		xw_base64(data, n, to + strlen(to));
		strcat(to, "\"");
	}
}

#define PRIVATE_ROOM (XW_BASE64_LEN(256) + 32)

/* failure_of is the event for the answer no. */
static enum rdma_cm_event_type failure_of(int error)
{
	switch (error) {
	case ECONNREFUSED: return RDMA_CM_EVENT_REJECTED;
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH: return RDMA_CM_EVENT_UNREACHABLE;
	}
	return RDMA_CM_EVENT_CONNECT_ERROR;
}

/* answered takes the answer to connect and accept. */
static void answered(struct call *c)
{
	struct id *id = c->owner;
	struct event *e = calloc(1, sizeof *e);
	bool ours = true;

	pthread_mutex_lock(&xw_cm_lock);
	if (id->state != CM_CONNECTING || !e) { /* it is being destroyed */
		ours = false;
	} else if (c->error) {
		id->state = CM_DOWN;
		xw_take_private(e, json_get(c->failure, "private_data"));
		xw_cm_post(id, &id->cm, failure_of(c->error), -c->error, e);
	} else {
		struct json params = json_get(c->result, "params");
		struct sockaddr_storage a;
		id->state = CM_CONNECTED;
		if (xw_addr_parse(json_get(c->result, "local"), &a))
			id->cm.route.addr.src_storage = a;
		if (!id->request)
			xw_take_private(e, json_get(params, "PrivateData"));
		e->cm.param.conn.responder_resources = xw_octet(params, "IRD");
		e->cm.param.conn.initiator_depth = xw_octet(params, "ORD");
		e->cm.param.conn.qp_num = id->qp;
		xw_cm_post(id, &id->cm, RDMA_CM_EVENT_ESTABLISHED, 0, e);
		if (id->down_early) {
			id->state = CM_DOWN;
			xw_cm_post(id, &id->cm, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		}
	}
	if (!ours)
		free(e);
	xw_call_end(c);
	id->pending = false;
	pthread_cond_broadcast(&xw_cm_changed);
	pthread_mutex_unlock(&xw_cm_lock);
	xw_resume_listeners();
}

/* operate makes the queue pair of an identifier ready to send: connect and accept need no further step of the program. */
static void operate(struct session *s, uint32_t qp_num)
{
	pthread_mutex_lock(&s->lock);
	for (struct qp *q = s->qps; q; q = q->next)
		if (q->ib.qp_num == qp_num) {
			pthread_mutex_lock(&q->ib.mutex);
			if (!q->down)
				xw_qp_becomes(&q->ib, IBV_QPS_RTS);
			pthread_mutex_unlock(&q->ib.mutex);
		}
	pthread_mutex_unlock(&s->lock);
}

/* start claims an identifier for connect or accept. */
static int start(struct id *id, const struct rdma_conn_param *p, enum cm_state from, uint32_t *qp)
{
	*qp = id->cm.qp ? id->cm.qp->qp_num : p ? p->qp_num : 0;
	pthread_mutex_lock(&xw_cm_lock);
	bool right = id->state == from && id->cm.verbs && *qp != 0;
	if (right) {
		id->state = CM_CONNECTING;
		id->s = xw_session(id->cm.verbs);
		id->qp = *qp;
		id->pending = true;
		id->call.owner = id;
		id->call.done = answered;
	}
	pthread_mutex_unlock(&xw_cm_lock);
	if (!right)
		return xw_fail(EINVAL);
	operate(id->s, *qp);
	return 0;
}

/* PATIENCE is how long, in milliseconds, a port that refuses is tried again: perftest connects a second time while its server is
 * about to listen a second time, and dies of a refusal. */
#define PATIENCE 300

EXPORT int rdma_connect(struct rdma_cm_id *cm, struct rdma_conn_param *p)
{
	struct id *id = xw_id(cm);
	char local[80], remote[80], data[PRIVATE_ROOM];
	uint32_t qp;

	if (start(id, p, CM_ROUTE, &qp) != 0)
		return -1;
	put_private(data, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	if (!p && id->ep_private)
		put_private(data, id->ep_private, id->ep_private_len);
	xw_addr_text(&cm->route.addr.src_addr, local, sizeof local);
	xw_addr_text(&cm->route.addr.dst_addr, remote, sizeof remote);
	xw_begin(id->s, &id->call, "connect", "{\"qp\":%u,\"local\":\"%s\",\"remote\":\"%s\",\"patience_ms\":%d%s}", qp, local, remote,
		 PATIENCE, data);
	return xw_cm_complete(id);
}

EXPORT int rdma_accept(struct rdma_cm_id *cm, struct rdma_conn_param *p)
{
	struct id *id = xw_id(cm);
	char data[PRIVATE_ROOM];
	uint32_t qp;

	if (start(id, p, CM_REQUEST, &qp) != 0)
		return -1;
	put_private(data, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	xw_begin(id->s, &id->call, "accept", "{\"handle\":%u,\"qp\":%u%s}", id->request, qp, data);
	return xw_cm_complete(id);
}

static void done_with(struct call *c)
{
	xw_call_end(c);
	free(c);
}

void xw_reject_async(struct session *s, uint32_t request)
{
	struct call *c = calloc(1, sizeof *c);

	if (!c)
		return; /* the daemon's time for the answer runs out */
	c->done = done_with;
	xw_begin(s, c, "reject", "{\"handle\":%u}", request);
}

EXPORT int rdma_reject(struct rdma_cm_id *cm, const void *private_data, uint8_t n)
{
	struct id *id = xw_id(cm);
	char data[PRIVATE_ROOM];

	pthread_mutex_lock(&xw_cm_lock);
	bool right = id->state == CM_REQUEST;
	if (right)
		id->state = CM_DOWN;
	pthread_mutex_unlock(&xw_cm_lock);
	if (!right)
		return xw_fail(EINVAL);
	put_private(data, private_data, n);
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
	if (id->sync && id->cm.event && id->cm.event->event != RDMA_CM_EVENT_ESTABLISHED)
		over = false; /* the event that a synchronous call waits for was there before */
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
