/* Devices of --style roce: programs exchange GID and QPN themselves and connect queue pairs by ibv_modify_qp. */
#include "objects.h"

#include <arpa/inet.h>

/* xw_roce reports whether `xwarp run --style roce` started the program. */
bool xw_roce(void)
{
	static _Atomic int style; /* 0: unknown */
	int is = atomic_load_explicit(&style, memory_order_relaxed);

	if (is == 0) {
		const char *name = secure_getenv("XWARP_STYLE");
		is = name && strcmp(name, "roce") == 0 ? 2 : 1;
		atomic_store_explicit(&style, is, memory_order_relaxed);
	}
	return is == 2;
}

/* parse_gid converts the text of an address to a GID. An IPv4 address is mapped. */
static bool parse_gid(struct json text, union ibv_gid *gid)
{
	char a[INET6_ADDRSTRLEN];

	memset(gid, 0, sizeof *gid);
	if (!json_text(text, a, sizeof a))
		return false;
	if (inet_pton(AF_INET6, a, gid->raw) == 1)
		return true;
	gid->raw[10] = gid->raw[11] = 0xff;
	return inet_pton(AF_INET, a, gid->raw + 12) == 1;
}

static void gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw))
		inet_ntop(AF_INET, gid->raw + 12, text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

int xw_gids(struct session *s, union ibv_gid *gids, int max)
{
	struct json item = {0};
	REPLY(c);
	int n = 0, error = xw_call(s, &c, -1, "query_gids", "{}");

	if (!error) {
		struct json list = json_get(c.result, "gids");
		for (union ibv_gid gid; json_next(list, &item); n++)
			if (n < max && parse_gid(item, &gid))
				gids[n] = gid;
	} else {
		xw_call_explain(&c);
	}
	return error ? xw_fail(error) : n < XW_MAX_GIDS ? n : XW_MAX_GIDS;
}

int xw_no_gid(int index, int gids)
{
	if (xw_first_time(__func__) || xw_debug())
		xw_warn("GID index %d: the device has %d (ibv_devinfo -v lists them)", index, gids);
	return EINVAL;
}

/* Address handles are for datagrams, which are not supported, but programs create one to validate an address. */
EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (!xw_roce())
		return xw_null(xw_refused(xw_datagrams));
	if (!attr->is_global || attr->port_num != 1)
		return xw_null(EINVAL);
	int gids = xw_gids(xw_session(pd->context), NULL, 0);
	if (gids < 0)
		return NULL;
	if (attr->grh.sgid_index >= gids)
		return xw_null(xw_no_gid(attr->grh.sgid_index, gids));
	struct ibv_ah *ah = calloc(1, sizeof *ah);
	if (!ah)
		return xw_null(ENOMEM);
	ah->context = pd->context;
	ah->pd = pd;
	return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	return 0;
}

/* A transition of a reliable connection: the required and optional attributes of ibv_modify_qp besides the state, as
 * in the kernel's qp_state_table, which soft-RoCE uses. */
struct transition {
	bool allowed;
	int must, may;
};

#define RTS_MAY (IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)
#define SQD_MAY (IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | \
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | \
		 IBV_QP_PATH_MIG_STATE)

static const struct transition transitions[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_INIT] = {true, XW_INIT_MUST, 0}},
	[IBV_QPS_INIT] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_ERR] = {true, 0, 0}, [IBV_QPS_INIT] = {true, 0, XW_INIT_MUST},
			  [IBV_QPS_RTR] = {true, XW_RTR_MUST, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
	[IBV_QPS_RTR] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_ERR] = {true, 0, 0}, [IBV_QPS_RTS] = {true, XW_RTS_MUST, RTS_MAY}},
	[IBV_QPS_RTS] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_ERR] = {true, 0, 0}, [IBV_QPS_RTS] = {true, 0, RTS_MAY},
			 [IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	[IBV_QPS_SQD] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_ERR] = {true, 0, 0}, [IBV_QPS_RTS] = {true, 0, RTS_MAY},
			 [IBV_QPS_SQD] = {true, 0, SQD_MAY}},
	[IBV_QPS_ERR] = {[IBV_QPS_RESET] = {true, 0, 0}, [IBV_QPS_ERR] = {true, 0, 0}},
};

static bool transition_allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	const struct transition *t;

	if ((unsigned)from > IBV_QPS_ERR || (unsigned)to > IBV_QPS_ERR)
		return false;
	t = &transitions[from][to];
	return t->allowed && (mask & t->must) == t->must && !(mask & ~(t->must | t->may | IBV_QP_STATE));
}

/* attributes_valid reports whether the values of the attributes are valid, by the checks of soft-RoCE. */
static bool attributes_valid(const struct ibv_qp_attr *a, int mask)
{
	return !(mask & IBV_QP_PORT && a->port_num != 1) && !(mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0) &&
	       !(mask & IBV_QP_AV && (!a->ah_attr.is_global || a->ah_attr.port_num != 1)) &&
	       !(mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) &&
	       !(mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > XW_READS) &&
	       !(mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > XW_READS) &&
	       !(mask & IBV_QP_TIMEOUT && a->timeout > 31) && !(mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) &&
	       !(mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) && !(mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31);
}

int xw_set_state(struct qp *q, const char *state, const char *more)
{
	REPLY(c);
	int error = xw_call(q->s, &c, -1, "set_state", "{\"qp\":%u,\"state\":\"%s\"%s}", q->ib.handle, state, more);

	if (error)
		xw_call_explain(&c);
	return error;
}

static int to_rtr(struct qp *q, const struct ibv_qp_attr *a)
{
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN], args[256];
	union ibv_gid gids[XW_MAX_GIDS];
	int n = xw_gids(q->s, gids, XW_MAX_GIDS);

	if (n < 0)
		return errno;
	if (a->ah_attr.grh.sgid_index >= n)
		return xw_no_gid(a->ah_attr.grh.sgid_index, n);
	gid_text(&gids[a->ah_attr.grh.sgid_index], local);
	gid_text(&a->ah_attr.grh.dgid, remote);
	snprintf(args, sizeof args, ",\"local_gid\":\"%s\",\"remote_gid\":\"%s\",\"remote_qpn\":%u,\"ird\":%u,\"rnr_timer\":%u",
		 local, remote, a->dest_qp_num & 0xffffff, a->max_dest_rd_atomic, a->min_rnr_timer);
	if (a->ah_attr.grh.traffic_class >> 2) /* the lower two bits belong to ECN */
		snprintf(args + strlen(args), sizeof args - strlen(args), ",\"dscp\":%u", a->ah_attr.grh.traffic_class >> 2);
	return xw_set_state(q, "rtr", args);
}

static int to_rts(struct qp *q, const struct ibv_qp_attr *a)
{
	char args[64];

	snprintf(args, sizeof args, ",\"timeout\":%u,\"retry_cnt\":%u,\"rnr_retry\":%u", a->timeout, a->retry_cnt, a->rnr_retry);
	return xw_set_state(q, "rts", args);
}

static void forget(struct ibv_cq *ib, struct qp *q, struct record *k)
{
	struct cq *cq = container_of(ib, struct cq, ib);

	xw_cq_forget(cq, q->ib.qp_num);
	LOCKED(&cq->poll)
		xw_record_reset(k);
}

/* to_reset drops the posted requests, without completions. */
static int to_reset(struct qp *q)
{
	GUARD(&q->send);
	GUARD(&q->recv);
	int error = xw_set_state(q, "reset", "");
	if (error)
		return error;
	forget(q->ib.send_cq, q, q->sq.record);
	forget(q->ib.recv_cq, q, q->rq.record);
	xw_cq_add(container_of(q->ib.send_cq, struct cq, ib), q);
	if (q->ib.recv_cq != q->ib.send_cq)
		xw_cq_add(container_of(q->ib.recv_cq, struct cq, ib), q);
	xw_bounce_forget(q);
	q->attr = (struct ibv_qp_attr){0};
	q->of_cm = q->down = false;
	q->allowed = XW_REMOTE_RIGHTS;
	return 0;
}

int xw_move_roce(struct qp *q, enum ibv_qp_state from, enum ibv_qp_state to, const struct ibv_qp_attr *a)
{
	if (to == IBV_QPS_RTR && a->dest_qp_num == XW_QPN_OF_CM)
		q->of_cm = true;
	if (q->of_cm && (to == IBV_QPS_RTR || to == IBV_QPS_RTS)) /* rdma_cm connects: these are only names */
		return 0;
	switch (to) {
	case IBV_QPS_RESET: return from == IBV_QPS_RESET ? 0 : to_reset(q);
	case IBV_QPS_RTR: return to_rtr(q, a);
	case IBV_QPS_RTS: return from == IBV_QPS_RTS ? 0 : to_rts(q, a);
	case IBV_QPS_SQD: return from == IBV_QPS_SQD ? 0 : xw_set_state(q, "sqd", "");
	case IBV_QPS_ERR: return from == IBV_QPS_ERR ? 0 : xw_set_state(q, "err", "");
	default: return 0;
	}
}

bool xw_may_roce(enum ibv_qp_state from, enum ibv_qp_state to, const struct ibv_qp_attr *a, int mask)
{
	static const char no_gid[] = "the peer has no GID: ibv_rc_pingpong and similar programs need -g 0 at both ends, qperf -cm 1";

	if (mask & IBV_QP_AV && !a->ah_attr.is_global && xw_first_time(no_gid))
		xw_warn("%s", no_gid);
	return transition_allowed(from, to, mask) && attributes_valid(a, mask);
}
