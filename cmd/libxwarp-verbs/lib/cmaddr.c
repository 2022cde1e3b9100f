/* rdma_cm: addresses, routes, and queue pairs of identifiers. */
#include "cm.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>

socklen_t xw_addr_len(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

uint16_t *xw_port(struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port : &((struct sockaddr_in *)a)->sin_port;
}

bool xw_wildcard(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr == INADDR_ANY;
}

/* xw_addr_text formats an address as 192.0.2.1:7174 or [fe80::1%eth0]:7174. Without an address the text is empty. */
void xw_addr_text(const struct sockaddr *a, char *to, size_t room)
{
	char host[INET6_ADDRSTRLEN], zone[IF_NAMESIZE + 1] = "";

	*to = 0;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		snprintf(to, room, "%s:%u", host, ntohs(in->sin_port));
	} else if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;
		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
		if (in->sin6_scope_id && if_indextoname(in->sin6_scope_id, zone + 1))
			*zone = '%';
		snprintf(to, room, "[%s%s]:%u", host, zone, ntohs(in->sin6_port));
	}
}

bool xw_addr_parse(const struct session *s, struct json v, struct sockaddr_storage *out)
{
	char text[96], *host = text, *port, *zone;

	memset(out, 0, sizeof *out);
	if (!json_text(v, text, sizeof text) || !(port = strrchr(text, ':')))
		return false;
	*port++ = 0;
	if (*host != '[') {
		struct sockaddr_in *in = (void *)out;
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(port));
		return inet_pton(AF_INET, host, &in->sin_addr) == 1;
	}
	struct sockaddr_in6 *in = (void *)out;
	host[strcspn(host, "]")] = 0;
	if ((zone = strchr(host, '%'))) {
		*zone++ = 0;
		if (!(in->sin6_scope_id = if_nametoindex(zone)) && xw_is_here(&s->link))
			in->sin6_scope_id = (uint32_t)strtoul(zone, NULL, 10); /* RFC 4007, 11.2 */
	}
	in->sin6_family = AF_INET6;
	in->sin6_port = htons((uint16_t)atoi(port));
	return inet_pton(AF_INET6, host + 1, &in->sin6_addr) == 1;
}

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

void xw_cm_contexts_forked(void) { pthread_mutex_init(&contexts_lock, NULL); }

/* xw_cm_context returns the context shared by the identifiers on a device, with its protection domain. Both are
 * never freed: identifiers still use those of a daemon that is gone. */
struct ibv_context *xw_cm_context(struct ibv_device *device)
{
	struct ibv_context *c;

	if (!device)
		return NULL;
	GUARD(&contexts_lock);
	struct ibv_context **kept = &container_of(device, struct device, ib)->of_cm;
	if (*kept && !xw_session(*kept)->dead)
		return *kept;
	if ((c = ibv_open_device(device)) && !(xw_context(c)->pd = ibv_alloc_pd(c))) {
		int error = errno;
		ibv_close_device(c);
		return xw_null(error);
	}
	if (c)
		xw_session(c)->layers[CM] = &xw_cm_layer;
	return *kept = c;
}

/* xw_bind_device sets the device of an identifier to that of a local address (see xw_device_at). It returns errno if
 * there is none. */
int xw_bind_device(struct id *id, const struct sockaddr *local, bool any)
{
	struct ibv_context *verbs = xw_cm_context(xw_device_at(local, any));

	if (!verbs)
		return errno ? errno : ENODEV;
	xw_cm_use(id, verbs);
	return 0;
}

static bool family_known(const struct sockaddr *a) { return a->sa_family == AF_INET || a->sa_family == AF_INET6; }

void xw_free_port(struct id *id)
{
	if (id->reserved >= 0)
		close(id->reserved);
	id->reserved = -1;
}

/* reserve_port reserves the port of a bind, or chooses one for port 0: programs query the port before they listen,
 * and try the next port after EADDRINUSE. SO_REUSEADDR lets a restarted server bind although old connections exist,
 * but not if there is another listener. */
static int reserve_port(struct id *id)
{
	struct sockaddr *a = &id->cm.route.addr.src_addr;
	socklen_t n = xw_addr_len(a);

	bool any = *xw_port(a) == 0;
	int fd = xw_socket(a->sa_family, SOCK_STREAM), reuse = !any;

	id->reserved = fd;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0 ||
	    (a->sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){id->afonly}, sizeof(int)) != 0) ||
	    bind(fd, a, n) != 0 || getsockname(fd, a, &n) != 0) {
		int error = errno;
		xw_free_port(id);
		return xw_fail(error);
	}
	id->any_port = any;
	return 0;
}

/* choose_port chooses the port of an active identifier. Programs that resolve many addresses before they connect need
 * their descriptors: then the port is not reserved, and the daemon chooses another one if it is taken by then. */
static void choose_port(struct id *id)
{
	struct rlimit files;
	int before = errno;

	if (reserve_port(id) == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && (rlim_t)id->reserved > files.rlim_cur / 2)
		xw_free_port(id);
	errno = before;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *cm, struct sockaddr *addr)
{
	struct id *id = xw_id(cm);

	if (!family_known(addr))
		return xw_fail(EAFNOSUPPORT);
	if (id->state != CM_IDLE)
		return xw_fail(EINVAL);
	if (!xw_wildcard(addr)) {
		int error = xw_bind_device(id, addr, false); /* libfabric offers peers every address that has a device */
		if (error && !xw_loopback(addr)) /* the kernel resolves the device only in listen */
			return xw_fail(error);
	}
	memcpy(&cm->route.addr.src_storage, addr, xw_addr_len(addr));
	if (reserve_port(id) != 0)
		return -1;
	id->state = CM_BOUND;
	return 0;
}

/* source_for returns the kernel's source address for routes to dst. */
static bool source_for(const struct sockaddr *dst, struct sockaddr_storage *src)
{
	socklen_t n = sizeof *src;
	FD fd = xw_socket(dst->sa_family, SOCK_DGRAM);
	bool found = fd >= 0 && connect(fd, dst, xw_addr_len(dst)) == 0 && getsockname(fd, (struct sockaddr *)src, &n) == 0;

	if (found)
		*xw_port((struct sockaddr *)src) = 0;
	return found;
}

/* resolved handles the daemon's reply about the next hop. */
static void resolved(struct call *c)
{
	struct id *id = c->owner;

	GUARD(&xw_cm_lock);
	if (id->state == CM_RESOLVING) { /* otherwise it is being destroyed */
		id->state = c->error ? CM_BOUND : CM_ADDR;
		xw_cm_post(id, &id->cm, c->error ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, -c->error, NULL);
	}
	xw_cm_done(id);
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *cm, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct id *id = xw_id(cm);
	struct sockaddr_storage *local = &cm->route.addr.src_storage;
	char remote[80];
	int error = 0;

	if (!family_known(dst) || (src && !family_known(src)))
		return xw_fail(EAFNOSUPPORT);
	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return xw_fail(EINVAL);
	if (src && id->state == CM_IDLE)
		memcpy(local, src, xw_addr_len(src));
	if (!id->any_port) {
		xw_free_port(id);
	} else if (id->reserved < 0) { /* the port of an earlier call is no longer reserved */
		*xw_port((struct sockaddr *)local) = 0;
	}
	if ((void *)dst != (void *)&cm->route.addr.dst_storage) /* rsockets pass this address itself when they retry */
		memcpy(&cm->route.addr.dst_storage, dst, xw_addr_len(dst));
	if (local->ss_family == AF_UNSPEC || xw_wildcard((struct sockaddr *)local)) {
		uint16_t port = local->ss_family == AF_UNSPEC ? 0 : *xw_port((struct sockaddr *)local);
		if (source_for(dst, local))
			*xw_port((struct sockaddr *)local) = port;
		else
			error = EHOSTUNREACH;
	}
	if (!error && !cm->verbs)
		error = xw_bind_device(id, (struct sockaddr *)local, true);
	if (!error && *xw_port((struct sockaddr *)local) == 0)
		choose_port(id);
	LOCKED(&xw_cm_lock)
		if (error) {
			xw_cm_post(id, cm, RDMA_CM_EVENT_ADDR_ERROR, -error, NULL);
		} else {
			id->state = CM_RESOLVING;
			xw_cm_pend(id, resolved);
		}
	if (!error) {
		int most = (int)XW_MAX_RESOLVE;
		xw_addr_text(&cm->route.addr.dst_addr, remote, sizeof remote);
		xw_begin(id->s, &id->call, "resolve", "{\"remote\":\"%s\",\"timeout_ms\":%d}", remote,
			 timeout_ms < 0 || timeout_ms > most ? most : timeout_ms);
	}
	return xw_cm_complete(id);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *cm, int timeout_ms)
{
	struct id *id = xw_id(cm);

	(void)timeout_ms; /* iWARP does not resolve routes, in the kernel either */
	LOCKED(&xw_cm_lock) {
		if (id->state != CM_ADDR)
			return xw_fail(EINVAL);
		id->state = CM_ROUTE;
		xw_cm_post(id, cm, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	}
	return xw_cm_complete(id);
}

EXPORT struct ibv_context **rdma_get_devices(int *num)
{
	int n = 0, have;
	struct ibv_device **list = ibv_get_device_list(&have);
	struct ibv_context **contexts = list ? calloc((size_t)have + 1, sizeof *contexts) : NULL;

	for (int i = 0; contexts && i < have; i++)
		if ((contexts[n] = xw_cm_context(list[i])))
			n++;
	if (list)
		ibv_free_device_list(list);
	if (num)
		*num = n;
	return contexts;
}

EXPORT void rdma_free_devices(struct ibv_context **list) { free(list); }

/* Queue pairs. */

/* gid_of converts an address to a GID. */
static union ibv_gid gid_of(const struct sockaddr *a)
{
	union ibv_gid gid = {0};

	if (a->sa_family == AF_INET6) {
		memcpy(gid.raw, &((const struct sockaddr_in6 *)a)->sin6_addr, sizeof gid.raw);
	} else {
		gid.raw[10] = gid.raw[11] = 0xff;
		memcpy(gid.raw + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
	}
	return gid;
}

/* init_roce adds the attributes that xw_may_roce requires. XW_QPN_OF_CM tells it that rdma_cm connects the queue
 * pair. */
static int init_roce(struct rdma_cm_id *cm, struct ibv_qp_attr *attr)
{
	struct ibv_port_attr port;
	union ibv_gid own = gid_of(&cm->route.addr.src_addr), all[XW_MAX_GIDS];
	int n, i = 0;

	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		attr->pkey_index = 0;
		return XW_INIT_MUST;
	case IBV_QPS_RTR:
		if (ibv_query_port(cm->verbs, 1, &port) != 0 || (n = xw_gids(xw_session(cm->verbs), all, XW_MAX_GIDS)) < 0)
			return -1;
		while (i < n && memcmp(&all[i], &own, sizeof own) != 0)
			i++;
		attr->path_mtu = port.active_mtu;
		attr->dest_qp_num = XW_QPN_OF_CM;
		attr->rq_psn = 0;
		attr->max_dest_rd_atomic = XW_READS;
		attr->min_rnr_timer = 0;
		attr->ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1,
			.grh = {.dgid = gid_of(&cm->route.addr.dst_addr), .sgid_index = i < n ? (uint8_t)i : 0, .hop_limit = 64}};
		return XW_RTR_MUST;
	case IBV_QPS_RTS:
		attr->timeout = 14;
		attr->retry_cnt = attr->rnr_retry = 7;
		attr->sq_psn = 0;
		attr->max_rd_atomic = XW_READS;
		return XW_RTS_MUST;
	default: return 0;
	}
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *cm, struct ibv_qp_attr *attr, int *mask)
{
	int more = 0;

	if (!cm->verbs)
		return xw_fail(EINVAL);
	if (attr->qp_state == IBV_QPS_INIT) {
		more = IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
		attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | XW_REMOTE_ACCESS;
		attr->port_num = cm->port_num;
	}
	if (xw_roce() && (more = init_roce(cm, attr)) < 0)
		return -1;
	*mask = IBV_QP_STATE | more;
	return 0;
}

/* own_cq creates a completion queue and channel for one direction. */
static int own_cq(struct rdma_cm_id *cm, uint32_t depth, struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(cm->verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(cm->verbs, depth ? (int)depth : 1, cm, *channel, 0);
	return *cq ? 0 : -1;
}

/* drop_cqs destroys the queues and channels of the identifier. One may serve both directions. */
static void drop_cqs(struct rdma_cm_id *cm)
{
	if (cm->recv_cq)
		ibv_destroy_cq(cm->recv_cq);
	if (cm->send_cq && cm->send_cq != cm->recv_cq)
		ibv_destroy_cq(cm->send_cq);
	if (cm->recv_cq_channel)
		ibv_destroy_comp_channel(cm->recv_cq_channel);
	if (cm->send_cq_channel && cm->send_cq_channel != cm->recv_cq_channel)
		ibv_destroy_comp_channel(cm->send_cq_channel);
	cm->recv_cq = cm->send_cq = NULL;
	cm->recv_cq_channel = cm->send_cq_channel = NULL;
}

/* choose_cqs sets the queues that the program did not specify, to those of the identifier or to new ones. */
static int choose_cqs(struct rdma_cm_id *cm, struct ibv_qp_init_attr_ex *a)
{
	if ((!a->send_cq && !cm->send_cq && own_cq(cm, a->cap.max_send_wr, &cm->send_cq_channel, &cm->send_cq) != 0) ||
	    (!a->recv_cq && !cm->recv_cq && own_cq(cm, a->cap.max_recv_wr, &cm->recv_cq_channel, &cm->recv_cq) != 0))
		return -1;
	if (!a->send_cq)
		a->send_cq = cm->send_cq;
	if (!a->recv_cq)
		a->recv_cq = cm->recv_cq;
	return 0;
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *cm, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp *qp = NULL;

	if (cm->qp || !cm->verbs || (a->send_cq && cm->send_cq && a->send_cq != cm->send_cq) ||
	    (a->recv_cq && cm->recv_cq && a->recv_cq != cm->recv_cq))
		return xw_fail(EINVAL);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = cm->pd;
	} else if (a->pd->context->device != cm->verbs->device) {
		return xw_fail(EINVAL);
	}
	if (!a->srq)
		a->srq = cm->srq;
	if (choose_cqs(cm, a) != 0 || !(qp = xw_create_qp_ex(cm->verbs, a))) {
		int error = errno;
		drop_cqs(cm);
		return xw_fail(error);
	}
	qp->state = IBV_QPS_INIT;
	cm->pd = a->pd;
	cm->qp = qp;
	return 0;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *cm, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap,
		.qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all, .comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0, .pd = pd,
	};

	if (rdma_create_qp_ex(cm, &ex) != 0)
		return -1;
	a->cap = ex.cap;
	a->send_cq = ex.send_cq;
	a->recv_cq = ex.recv_cq;
	return 0;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *cm)
{
	LOCKED(&xw_cm_lock)
		xw_cm_settle(xw_id(cm)); /* a pending connect uses the queue pair */
	if (cm->qp && ibv_destroy_qp(cm->qp) == 0)
		cm->qp = NULL;
	drop_cqs(cm);
}
