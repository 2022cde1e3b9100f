/* Devices, contexts and their attributes. */
#include "objects.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#undef ibv_get_device_list
#undef ibv_query_port

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices;	  /* all devices that ever existed; programs keep pointers to them */

void xw_devices_forked(void) { pthread_mutex_init(&lock, NULL); }

static const struct link *link_of(struct ibv_device *d) { return container_of(d, struct device, ib)->link; }

static struct link *copy(const struct link *l)
{
	struct link *c = malloc(sizeof *c);

	return c ? memcpy(c, l, sizeof *c) : NULL;
}

/* device_of returns the device of a link, and creates it if needed. It updates the device's copy of the link. lock must be
 * held. */
static struct device *device_of(const struct link *l)
{
	struct device *d = devices;
	struct link *c;

	while (d && strcmp(d->link->name, l->name) != 0)
		d = d->next;
	if (d) {
		if (memcmp(d->link, l, sizeof *l) != 0 && (c = copy(l)))
			d->link = c;
		return d;
	}
	d = calloc(1, sizeof *d);
	if (!d || !(d->link = copy(l))) {
		free(d);
		return NULL;
	}
	d->ib.node_type = xw_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
	d->ib.transport_type = xw_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
	snprintf(d->ib.name, sizeof d->ib.name, "xwarp_%s", l->name);
	snprintf(d->ib.dev_name, sizeof d->ib.dev_name, "%s", d->ib.name);
	/* Programs read files below both: see sysfs.c. */
	snprintf(d->ib.ibdev_path, sizeof d->ib.ibdev_path, "/sys/class/infiniband/%s", d->ib.name);
	snprintf(d->ib.dev_path, sizeof d->ib.dev_path, "%s", d->ib.ibdev_path);
	LINK(devices, d);
	return d;
}

/* session_of returns the session of a device, or of any one if name is empty. On error it returns NULL and sets errno.
 * lock must be held. */
static struct session *session_of(const char *name)
{
	int error = ENOMEM;

	for (struct device *d = devices; d; d = d->next) {
		if (d->session && d->session->dead) {
			xw_session_put(d->session);
			d->session = NULL;
		}
		if (d->session && (!*name || strcmp(d->link->name, name) == 0))
			return d->session;
	}
	struct session *s = xw_session_open(name, &error);
	struct device *d = s ? device_of(&s->link) : NULL;
	if (s)
		s->layers[VERBS] = &xw_verbs_layer;
	if (d)
		return d->session = s;
	if (s)
		xw_session_put(s);
	return xw_null(error);
}

/* index_of returns the index of a link's interface in this network namespace; 0 if there is none. In another namespace
 * than the daemon's that is the interface of the same name. */
static unsigned index_of(const struct link *l)
{
	unsigned n = if_nametoindex(l->interface);
	char name[IF_NAMESIZE];

	return n || !if_indextoname(l->ifindex, name) || !xw_is_here(l) ? n : l->ifindex; /* the interface was renamed */
}

/* serves reports whether a link is on the interface of this name. */
static bool serves(const struct link *l, const char *interface)
{
	unsigned n = index_of(l);

	return n && n == if_nametoindex(interface);
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	const char *only = secure_getenv("XWARP_DEVICE");
	int n = 0;

	if (!only)
		only = "";
	GUARD(&lock);
	struct session *s = session_of(only);
	struct ibv_device **list = calloc((size_t)(s ? s->n_links : 0) + 1, sizeof *list);
	for (int i = 0; list && s && i < s->n_links; i++) {
		bool wanted = !*only || strcmp(only, s->links[i].name) == 0;
		struct device *d = wanted ? device_of(&s->links[i]) : NULL;
		if (d)
			list[n++] = &d->ib;
	}
	if (num)
		*num = n;
	if (!list)
		errno = ENOMEM;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
EXPORT const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

EXPORT int ibv_get_device_index(struct ibv_device *d)
{
	return (int)index_of(link_of(d));
}

static uint64_t guid(const struct link *l)
{
	const uint8_t *m = l->mac;
	uint64_t g = 0;

	uint8_t eui[8] = {m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
	memcpy(&g, eui, 8);
	return g;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *d) { return guid(link_of(d)); }

bool xw_same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) == 0 &&
	       (a6->sin6_scope_id == b6->sin6_scope_id || !a6->sin6_scope_id || !b6->sin6_scope_id);
}

/* xw_loopback reports whether an address is ::1 or of 127.0.0.0/8. */
bool xw_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
	return a->sa_family == AF_INET && ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* xw_device_at returns the device whose interface has a local address, else a kernel-transport device. If there is
 * neither, any is set and the address is a loopback address, it returns the first device. */
struct ibv_device *xw_device_at(const struct sockaddr *addr, bool any)
{
	char interface[IF_NAMESIZE] = "";
	struct ibv_device **list, *found = NULL;
	struct ifaddrs *all = NULL;

	errno = 0;
	if (!(list = ibv_get_device_list(NULL)))
		return NULL;
	bool broken = !list[0] && errno == EIO; /* the connection to the daemon ended at once */
	getifaddrs(&all);
	for (struct ifaddrs *a = all; a; a = a->ifa_next)
		if (a->ifa_addr && xw_same_address(a->ifa_addr, addr))
			snprintf(interface, sizeof interface, "%s", a->ifa_name);
	freeifaddrs(all);
	for (int pass = 0; pass < 2 && !found; pass++) /* a kernel-transport device serves addresses that no other device has */
		for (int i = 0; list[i] && !found; i++) {
			const struct link *l = link_of(list[i]);
			if (pass ? l->kernel : !l->kernel && serves(l, interface))
				found = list[i];
		}
	if (!found && any && xw_loopback(addr))
		found = list[0];
	free(list);
	if (!found)
		errno = broken ? EIO : ENODEV;
	return found;
}

/* VENDOR is not assigned by the IEEE, as with soft-iWARP: programs treat 0 as an error. */
#define VENDOR 0x787770

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	const struct link *l = link_of(context->device);
	const struct user_limits *limits = &xw_session(context)->limits;

	*a = (struct ibv_device_attr){
		.node_guid = guid(l), .sys_image_guid = guid(l), .max_mr_size = limits->memory, .page_size_cap = 4096,
		.vendor_id = VENDOR, .hw_ver = 1, .max_qp = limits->qps, .max_qp_wr = limits->work_requests,
		.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_mw = limits->mrs, .max_sge = XW_MAX_SGE, .max_sge_rd = XW_MAX_SGE, .max_cq = limits->cqs,
		.max_cqe = limits->completions, .max_mr = limits->mrs, .max_pd = limits->pds, .max_qp_rd_atom = XW_READS,
		.max_res_rd_atom = XW_READS * 1024, .max_qp_init_rd_atom = XW_READS, .atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = limits->srqs, .max_srq_wr = limits->work_requests, .max_srq_sge = XW_MAX_SGE, .phys_port_cnt = 1,
		.max_ah = xw_roce() ? limits->qps : 0, .max_pkeys = xw_roce(),
	};
	snprintf(a->fw_ver, sizeof a->fw_ver, "%llu", XW_VERSION);
	return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex a = {0};

	if (input && input->comp_mask)
		return EINVAL;
	ibv_query_device(context, &a.orig_attr);
	a.phys_port_cnt_ex = 1;
	a.completion_timestamp_mask = UINT64_MAX;
	a.hca_core_clock = 1000000; /* in kHz: timestamps are in ns */
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

static enum ibv_mtu mtu_of(unsigned mtu)
{
	return mtu >= 4096 ? IBV_MTU_4096 : mtu >= 2048 ? IBV_MTU_2048 : mtu >= 1024 ? IBV_MTU_1024 : mtu >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

/* ROCE_HEADERS is the size of the RoCE headers before the payload of a frame, with IPv6. */
#define ROCE_HEADERS 80

/* gids_of implements xw_gids for both styles. The only GID of an RNIC is its Ethernet address. */
static int gids_of(struct ibv_context *context, union ibv_gid *gids, int max)
{
	if (xw_roce())
		return xw_gids(xw_session(context), gids, max);
	if (max > 0) {
		memset(gids, 0, sizeof *gids);
		memcpy(gids->raw, xw_session(context)->link.mac, sizeof xw_session(context)->link.mac);
	}
	return 1;
}

/* Each port has one lane of 10 Gb/s, in the encoding of InfiniBand and in units of 100 Mb/s. */
enum { LANES_1 = 1, SPEED_10 = 4, SPEED_UNITS = 100 };

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct session *s = xw_session(context);
	bool up = !s->dead;
	int gids = gids_of(context, NULL, 0);
	struct ibv_port_attr a = {
		.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN, .max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_of(s->link.mtu - (xw_roce() ? ROCE_HEADERS : 0)), .gid_tbl_len = gids > 0 ? gids : 0, .max_msg_sz = UINT32_MAX,
		.pkey_tbl_len = 1, .active_width = LANES_1, .active_speed = SPEED_10, .phys_state = up ? 5 : 3,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	if (port != 1)
		return EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

/* Programs built before link_layer existed have a shorter structure. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

NEWER(int, ibv_query_port_speed, (struct ibv_context *context, uint32_t port, uint64_t *speed))
{
	(void)context;
	if (port != 1)
		return EINVAL;
	*speed = SPEED_UNITS;
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	union ibv_gid all[XW_MAX_GIDS];

	if (port != 1 || index < 0)
		return xw_fail(EINVAL);
	int n = gids_of(context, all, XW_MAX_GIDS);
	if (n < 0)
		return -1;
	if (index >= n) /* programs try indexes until one fails */
		return xw_fail(xw_debug() ? xw_no_gid(index, n) : EINVAL);
	*gid = all[index];
	return 0;
}

static void put_gid(struct ibv_context *context, uint32_t port, uint32_t index, const union ibv_gid *gid,
		    struct ibv_gid_entry *entry, size_t size)
{
	struct ibv_gid_entry e = {.gid = *gid, .gid_index = index, .port_num = port,
				  .gid_type = xw_roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
				  .ndev_ifindex = index_of(&xw_session(context)->link)};

	memcpy(entry, &e, size < sizeof e ? size : sizeof e);
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	union ibv_gid gid;

	if (flags || port != 1 || ibv_query_gid(context, 1, (int)index, &gid) != 0)
		return EINVAL;
	put_gid(context, port, index, &gid, entry, size);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	union ibv_gid all[XW_MAX_GIDS];
	int n = gids_of(context, all, XW_MAX_GIDS);

	if (n < 0)
		return -errno;
	if (max < (size_t)n || (flags && n > 0))
		return -EINVAL;
	for (int i = 0; i < n; i++)
		put_gid(context, 1, (uint32_t)i, &all[i], (void *)((char *)entries + (size_t)i * size), size);
	return n;
}

/* ibv_query_gid_type has its own enumeration: 0 is IB, RoCE v1 and the type of an RNIC, 1 is RoCE v2. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
	union ibv_gid gid;

	*type = xw_roce();
	return ibv_query_gid(context, port, (int)index, &gid);
}

/* ROCE_PKEY is the default P_Key, with full membership. */
#define ROCE_PKEY 0xffff

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != 1 || index != 0)
		return xw_fail(EINVAL);
	*pkey = xw_roce() ? ROCE_PKEY : 0;
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == 1 && pkey == (xw_roce() ? ROCE_PKEY : 0) ? 0 : xw_fail(EINVAL);
}

static const struct verbs_context template = {
	.query_port = query_port, .query_device_ex = query_device_ex, .create_cq_ex = xw_create_cq_ex,
	.create_qp_ex = xw_create_qp_ex, .create_srq_ex = xw_create_srq_ex, .open_xrcd = xw_open_xrcd, .query_rt_values = xw_query_rt_values,
	.sz = sizeof(struct verbs_context),
	.context = {
		.ops = {.poll_cq = xw_poll_cq, .req_notify_cq = xw_req_notify_cq, .post_send = xw_post_send, .post_recv = xw_post_recv,
			.post_srq_recv = xw_post_srq_recv, .alloc_mw = xw_alloc_mw, .dealloc_mw = xw_dealloc_mw,
			.bind_mw = xw_bind_mw},
		.cmd_fd = -1, .num_comp_vectors = 1, .abi_compat = __VERBS_ABI_IS_EXTENDED,
	},
};

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *c = calloc(1, sizeof *c);

	if (!c)
		return xw_null(ENOMEM);
	LOCKED(&lock)
		if ((c->s = session_of(link_of(device)->name)))
			xw_session_get(c->s);
	if (!c->s) {
		free(c);
		return NULL;
	}
	c->v = template;
	c->v.priv = xw_no_operations();
	c->v.context.device = device;
	c->tail = &c->events;
	pthread_mutex_init(&c->v.context.mutex, NULL);
	c->v.context.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	c->v.context.cmd_fd = epoll_create1(EPOLL_CLOEXEC); /* rejects commands for the kernel */
	if (c->v.context.async_fd < 0) {
		xw_session_put(c->s);
		free(c);
		return xw_null(EMFILE);
	}
	GUARD(&c->s->lock);
	LINK(c->s->contexts, c);
	return &c->v.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct context *c = xw_context(context);
	struct async *a;

	LOCKED(&c->s->lock)
		UNLINK(c->s->contexts, c);
	xw_session_put(c->s);
	close(context->async_fd);
	close(context->cmd_fd);
	while ((a = c->events)) {
		c->events = a->next;
		free(a);
	}
	free(c);
	return 0;
}
