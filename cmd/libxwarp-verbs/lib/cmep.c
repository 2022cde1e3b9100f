/* rdma_cm: rdma_getaddrinfo and endpoints. */
#include "cm.h"

#include <rdma/rdma_verbs.h>

#include <netdb.h>

static int copy_addr(const struct sockaddr *from, socklen_t n, struct sockaddr **to, socklen_t *length)
{
	if (!from || n == 0)
		return 0;
	*to = malloc(n);
	if (!*to)
		return xw_fail(ENOMEM);
	memcpy(*to, from, n);
	*length = n;
	return 0;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *ai)
{
	while (ai) {
		struct rdma_addrinfo *next = ai->ai_next;
		free(ai->ai_src_addr);
		free(ai->ai_dst_addr);
		free(ai->ai_src_canonname);
		free(ai->ai_dst_canonname);
		free(ai->ai_connect);
		free(ai);
		ai = next;
	}
}

/* new_info returns an entry without addresses, or NULL. */
static struct rdma_addrinfo *new_info(int flags, int family)
{
	struct rdma_addrinfo *r = calloc(1, sizeof *r);

	if (r)
		*r = (struct rdma_addrinfo){.ai_flags = flags, .ai_family = family, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP};
	return r;
}

/* from_hints implements rdma_getaddrinfo for addresses that the program provides. */
static int from_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo **out)
{
	struct rdma_addrinfo *r;

	if (!hints || (!hints->ai_src_addr && !hints->ai_dst_addr))
		return xw_fail(EINVAL);
	if (!(r = new_info(hints->ai_flags, (hints->ai_dst_addr ? hints->ai_dst_addr : hints->ai_src_addr)->sa_family)))
		return xw_fail(ENOMEM);
	if (copy_addr(hints->ai_src_addr, hints->ai_src_len, &r->ai_src_addr, &r->ai_src_len) != 0 ||
	    copy_addr(hints->ai_dst_addr, hints->ai_dst_len, &r->ai_dst_addr, &r->ai_dst_len) != 0) {
		rdma_freeaddrinfo(r);
		return -1;
	}
	*out = r;
	return 0;
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **out)
{
	int flags = hints ? hints->ai_flags : 0, passive = flags & RAI_PASSIVE;
	struct addrinfo *list, want = {
		.ai_flags = (passive ? AI_PASSIVE : 0) | (flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0),
		.ai_family = hints ? hints->ai_family : AF_UNSPEC, .ai_socktype = SOCK_STREAM,
	};
	struct rdma_addrinfo *first = NULL, **tail = &first;

	if (hints && hints->ai_port_space && hints->ai_port_space != RDMA_PS_TCP && hints->ai_port_space != RDMA_PS_IB)
		return xw_fail(xw_refused("port spaces other than RDMA_PS_TCP (iWARP has no datagrams)"));
	if (!node && !service)
		return from_hints(hints, out);
	int error = getaddrinfo(node, service, &want, &list);
	if (error)
		return error == EAI_SYSTEM ? -1 : error;
	for (struct addrinfo *a = list; a; a = a->ai_next) {
		struct rdma_addrinfo *r = *tail = new_info(flags, a->ai_family);
		if (!r)
			break;
		tail = &r->ai_next;
		if (passive)
			copy_addr(a->ai_addr, a->ai_addrlen, &r->ai_src_addr, &r->ai_src_len);
		else
			copy_addr(a->ai_addr, a->ai_addrlen, &r->ai_dst_addr, &r->ai_dst_len);
		if (!passive && hints)
			copy_addr(hints->ai_src_addr, hints->ai_src_len, &r->ai_src_addr, &r->ai_src_len);
	}
	freeaddrinfo(list);
	*out = first;
	return first ? 0 : xw_fail(ENOMEM);
}

static int dial(struct rdma_cm_id *cm, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct id *id = xw_id(cm);

	if (rdma_resolve_addr(cm, res->ai_src_addr, res->ai_dst_addr, 2000) != 0 || rdma_resolve_route(cm, 2000) != 0)
		return -1;
	if (attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(cm, pd, attr) != 0)
			return -1;
	}
	if (res->ai_connect_len) {
		id->ep_private = malloc(res->ai_connect_len);
		if (!id->ep_private)
			return xw_fail(ENOMEM);
		id->ep_private_len = res->ai_connect_len > 255 ? 255 : (uint8_t)res->ai_connect_len;
		memcpy(id->ep_private, res->ai_connect, id->ep_private_len);
	}
	return 0;
}

EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *cm;

	if (rdma_create_id(NULL, &cm, NULL, (enum rdma_port_space)res->ai_port_space) != 0)
		return -1;
	struct id *id = xw_id(cm);
	if (res->ai_flags & RAI_PASSIVE && attr) {
		id->passive_qp = true;
		id->ep_attr = *attr;
		id->ep_attr.qp_type = (enum ibv_qp_type)res->ai_qp_type;
	}
	if (res->ai_flags & RAI_PASSIVE ? rdma_bind_addr(cm, res->ai_src_addr) : dial(cm, res, pd, attr)) {
		int error = errno;
		rdma_destroy_ep(cm);
		return xw_fail(error);
	}
	if (pd)
		cm->pd = pd;
	*out = cm;
	return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *cm)
{
	if (cm->qp)
		rdma_destroy_qp(cm);
	rdma_destroy_srq(cm);
	rdma_destroy_id(cm);
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *cm, struct ibv_srq_init_attr_ex *a)
{
	if (!cm->verbs || cm->srq || !(a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return xw_fail(EINVAL);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		a->pd = cm->pd;
	}
	if (!(cm->srq = ibv_create_srq_ex(cm->verbs, a)))
		return -1;
	cm->pd = a->pd;
	return 0;
}

EXPORT int rdma_create_srq(struct rdma_cm_id *cm, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = a->srq_context, .attr = a->attr, .srq_type = IBV_SRQT_BASIC, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | (pd ? IBV_SRQ_INIT_ATTR_PD : 0),
	};

	if (rdma_create_srq_ex(cm, &ex) != 0)
		return -1;
	a->attr = ex.attr;
	return 0;
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *cm)
{
	if (cm->srq && ibv_destroy_srq(cm->srq) == 0)
		cm->srq = NULL;
}
