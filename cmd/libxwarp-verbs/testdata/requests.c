/* Work requests between two queue pairs of one program, which connects them in the style of its device: PROGRAM TEST
 * ADDRESS, where ADDRESS is one of the device. */
#include "ends.h"

#include <sys/mman.h>

enum {
	ROOM = 1 << 16, DEPTH = 16, PIECES = 16, READS = 8,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	      IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* side is one end of a connection. */
struct side {
	struct rdma_cm_id *id; /* NULL unless rdma_cm connects */
	struct ibv_qp *qp;
	struct ibv_cq *send, *recv;
};

static struct ibv_context *c;
static struct ibv_pd *pd;
static bool roce;
static const char *own;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static char memory[ROOM] __attribute__((aligned(4096)));
static struct ibv_mr *mr;

static struct rdma_cm_id *cm_event(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;

	CHECK(rdma_get_cm_event(channel, &e) == 0);
	if (e->event != want)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(e->event), e->status);
	CHECK(e->event == want);
	struct rdma_cm_id *id = e->id;
	CHECK(rdma_ack_cm_event(e) == 0);
	return id;
}

static struct sockaddr_in at_own(int number)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};

	CHECK(inet_pton(AF_INET, own, &a.sin_addr) == 1);
	return a;
}

static struct rdma_cm_id *resolve(void)
{
	struct sockaddr_in a = at_own(PORT);
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000) == 0);
	cm_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	cm_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0]);
	roce = list[0]->transport_type == IBV_TRANSPORT_IB;
	if (roce) {
		CHECK((c = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(c)));
	} else {
		struct sockaddr_in a = at_own(PORT);
		CHECK((channel = rdma_create_event_channel()) && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_bind_addr(listener, (struct sockaddr *)&a) == 0 && rdma_listen(listener, 8) == 0);
		c = listener->verbs;
		pd = listener->pd;
	}
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS)));
	/* Libraries try datagrams first, which must not look like a fault. */
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr ud = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_UD};
	CHECK(cq && !ibv_create_qp(pd, &ud) && errno == EOPNOTSUPP);
	ud.qp_type = IBV_QPT_RC;
	struct ibv_qp *rc = ibv_create_qp(pd, &ud);
	CHECK(rc && ibv_destroy_qp(rc) == 0 && ibv_destroy_cq(cq) == 0);
}

static void create(struct side *s, struct ibv_srq *srq)
{
	CHECK((s->send = ibv_create_cq(c, 4 * DEPTH, NULL, NULL, 0)) && (s->recv = ibv_create_cq(c, 4 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr a = {.send_cq = s->send, .recv_cq = s->recv, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = {DEPTH, DEPTH, PIECES, 1, 64}};
	if (!s->id) {
		CHECK((s->qp = ibv_create_qp(pd, &a)));
		struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
		CHECK(ibv_modify_qp(s->qp, &init, INIT) == 0);
		return;
	}
	CHECK(rdma_create_qp(s->id, pd, &a) == 0);
	s->qp = s->id->qp;
}

static const struct rdma_conn_param depths = {.responder_resources = READS, .initiator_depth = READS};

/* prepare creates both queue pairs, of which b has the shared receive queue. Receives may be posted. With rdma_cm, a is
 * connecting. */
static void prepare(struct side *a, struct side *b, struct ibv_srq *srq)
{
	struct rdma_conn_param p = depths;

	*a = *b = (struct side){0};
	if (!roce)
		a->id = resolve();
	create(a, NULL);
	if (!roce) {
		CHECK(rdma_connect(a->id, &p) == 0);
		b->id = cm_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	}
	create(b, srq);
}

static void move_to_rts(struct ibv_qp *q, uint32_t peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = READS,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 16}}};

	CHECK(ibv_query_gid(c, 1, 0, &a.ah_attr.grh.dgid) == 0 && ibv_modify_qp(q, &a, RTR) == 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = READS};
	CHECK(ibv_modify_qp(q, &a, RTS) == 0);
}

static void join(struct side *a, struct side *b)
{
	struct rdma_conn_param p = depths;

	if (roce) {
		move_to_rts(a->qp, b->qp->qp_num);
		move_to_rts(b->qp, a->qp->qp_num);
		return;
	}
	CHECK(rdma_accept(b->id, &p) == 0);
	cm_event(RDMA_CM_EVENT_ESTABLISHED);
	cm_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void connected(struct side *a, struct side *b, struct ibv_srq *srq)
{
	prepare(a, b, srq);
	join(a, b);
}

static void destroy(struct side *s)
{
	if (s->id)
		rdma_destroy_qp(s->id);
	else
		CHECK(ibv_destroy_qp(s->qp) == 0);
	CHECK(ibv_destroy_cq(s->send) == 0 && ibv_destroy_cq(s->recv) == 0);
	if (s->id)
		CHECK(rdma_destroy_id(s->id) == 0);
}

/* finish destroys both ends, and takes the events of their connection. */
static void finish(struct side *a, struct side *b)
{
	destroy(a);
	destroy(b);
	for (struct pollfd p = {.fd = channel ? channel->fd : -1, .events = POLLIN}; poll(&p, 1, 0) == 1;) {
		struct rdma_cm_event *e;
		CHECK(rdma_get_cm_event(channel, &e) == 0 && rdma_ack_cm_event(e) == 0);
	}
}

static enum ibv_qp_state state_of(struct ibv_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(ibv_query_qp(q, &a, IBV_QP_STATE, &init) == 0);
	return a.qp_state;
}

/* wants polls a completion and checks its values. An error completion must come with the state ERR. */
static struct ibv_wc wants(struct ibv_cq *cq, struct ibv_qp *q, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = complete(cq);

	if (wc.wr_id != id || wc.status != status)
		fprintf(stderr, "request %d: %s, want request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), (int)id,
			ibv_wc_status_str(status));
	CHECK(wc.wr_id == id && wc.status == status && wc.qp_num == q->qp_num);
	CHECK(status == IBV_WC_SUCCESS || state_of(q) == IBV_QPS_ERR);
	return wc;
}

static void fill(void)
{
	for (int i = 0; i < ROOM; i++)
		memory[i] = (char)(i % 251);
}

enum { SOURCE = ROOM / 2, LENGTH = 100 };

/* scatter sets list to n pieces of a region, with gaps between them, of decreasing length and address. It returns
 * their total length. */
static uint32_t scatter(struct ibv_sge *list, int n, const struct ibv_mr *in)
{
	uint32_t total = 0;

	for (int i = 0; i < n; i++) {
		list[i] = (struct ibv_sge){(uintptr_t)in->addr + (uint64_t)((n - i) * 2 * LENGTH), (uint32_t)(LENGTH - i), in->lkey};
		total += list[i].length;
	}
	return total;
}

static bool gathered(const struct ibv_sge *list, int n)
{
	const char *from = memory + SOURCE;

	for (int i = 0; i < n; from += list[i++].length)
		if (memcmp((const void *)(uintptr_t)list[i].addr, from, list[i].length) != 0)
			return false;
	return true;
}

static struct ibv_send_wr read_of(uint64_t id, struct ibv_sge *list, int n)
{
	return (struct ibv_send_wr){.wr_id = id, .sg_list = list, .num_sge = n, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = {.remote_addr = (uintptr_t)memory + SOURCE, .rkey = mr->rkey}};
}

static void post(struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(s->qp, wr, &bad) == 0);
}

/* A Read of several pieces has one completion. Its memory may be on the stack, which the library copies. */
static void reads(void)
{
	char stack[ROOM];
	struct ibv_mr *copied, *sinks[2];
	struct ibv_device_attr device;
	struct ibv_sge list[READS][PIECES];
	struct side a, b;

	CHECK(ibv_query_device(c, &device) == 0 && device.max_sge_rd == PIECES && device.max_sge == PIECES);
	CHECK((copied = ibv_reg_mr(pd, stack, sizeof stack, IBV_ACCESS_LOCAL_WRITE)));
	sinks[0] = mr;
	sinks[1] = copied;
	connected(&a, &b, NULL);
	fill();
	for (int k = 0; k < 2; k++) {
		for (int n = 0; n <= PIECES; n++) {
			memset(sinks[k]->addr, 0, SOURCE);
			uint32_t total = scatter(list[0], n, sinks[k]);
			struct ibv_send_wr wr = read_of((uint64_t)n, list[0], n);
			post(&a, &wr);
			CHECK(wants(a.send, a.qp, (uint64_t)n, IBV_WC_SUCCESS).byte_len == total && gathered(list[0], n));
		}
		memset(sinks[k]->addr, 0, SOURCE);
		for (int i = 0; i < READS; i++) { /* more requests than may be outstanding */
			struct ibv_send_wr wr = read_of((uint64_t)i, list[i], PIECES);
			scatter(list[i], PIECES, sinks[k]);
			post(&a, &wr);
		}
		for (int i = 0; i < READS; i++)
			wants(a.send, a.qp, (uint64_t)i, IBV_WC_SUCCESS);
		CHECK(gathered(list[0], PIECES) && state_of(a.qp) == IBV_QPS_RTS);
	}
	finish(&a, &b);
	for (int fails = 0; fails < 4; fails++) { /* index of the piece whose request fails */
		connected(&a, &b, NULL);
		scatter(list[0], 4, mr);
		struct ibv_send_wr wr = read_of(1, list[0], 4);
		wr.wr.rdma.remote_addr = (uintptr_t)memory + ROOM - (uint64_t)(fails * LENGTH);
		post(&a, &wr);
		wants(a.send, a.qp, 1, IBV_WC_REM_ACCESS_ERR);
		wr = read_of(2, list[0], 4);
		post(&a, &wr);
		wants(a.send, a.qp, 2, IBV_WC_WR_FLUSH_ERR);
		finish(&a, &b);
	}
	CHECK(ibv_dereg_mr(copied) == 0);
}

/* A receive fails only if the message has a byte for memory that may not be written. */
static void receives(void)
{
	struct ibv_mr *small, *readable;
	struct side a, b;

	CHECK((small = ibv_reg_mr(pd, memory + 8192, 4096, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((readable = ibv_reg_mr(pd, memory + 16384, 4096, 0)));
	const struct {
		struct ibv_sge sge;
		uint32_t fits;
	} cases[] = {
		{{(uintptr_t)memory + 8192, 65536, small->lkey}, 4096},
		{{(uintptr_t)memory + 8192 + 4090, 64, small->lkey}, 6},
		{{(uintptr_t)memory, 64, 0}, 0},
		{{(uintptr_t)memory + 16384, 64, readable->lkey}, 0},
	};
	for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++)
		for (uint32_t over = 0; over < 3; over++) {
			uint32_t fits = cases[i / 2].fits, length = over == 0 ? 0 : over == 1 ? fits : fits + 1;
			struct ibv_sge to = cases[i / 2].sge, from = {(uintptr_t)memory, length, mr->lkey};
			struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &to, .num_sge = 1};
			struct ibv_srq_init_attr of = {.attr = {.max_wr = 4, .max_sge = 1}};
			struct ibv_srq *srq = i % 2 ? ibv_create_srq(pd, &of) : NULL;
			CHECK(srq || i % 2 == 0);
			prepare(&a, &b, srq);
			CHECK((srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(b.qp, &wr, &bad)) == 0);
			join(&a, &b);
			post(&a, &(struct ibv_send_wr){.wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED});
			if (length <= fits) {
				CHECK(wants(b.recv, b.qp, 1, IBV_WC_SUCCESS).byte_len == length);
				wants(a.send, a.qp, 2, IBV_WC_SUCCESS);
			} else {
				wants(b.recv, b.qp, 1, IBV_WC_LOC_PROT_ERR);
				if (roce) /* in the other style TCP may have acknowledged it before */
					wants(a.send, a.qp, 2, IBV_WC_REM_OP_ERR);
			}
			finish(&a, &b);
			CHECK(!srq || ibv_destroy_srq(srq) == 0);
		}
	CHECK(ibv_dereg_mr(small) == 0 && ibv_dereg_mr(readable) == 0);
}

/* A Send does not fail because of parts that need not be read: pieces of no bytes, and keys of inline data. */
static void sends(void)
{
	struct ibv_sge list[] = {{0, 0, 0}, {(uintptr_t)memory, 3, mr->lkey}, {1, 0, 77}}, inlined = {(uintptr_t)"abc", 4, 77};
	const struct {
		struct ibv_sge *list;
		int n;
		unsigned flags;
		uint32_t bytes;
	} cases[] = {{list, 1, 0, 0}, {list, 3, 0, 3}, {&inlined, 1, IBV_SEND_INLINE, 4}, {NULL, 0, 0, 0}, {NULL, 0, IBV_SEND_INLINE, 0}};
	struct side a, b;

	prepare(&a, &b, NULL);
	join(&a, &b);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ibv_sge to = {(uintptr_t)memory + 4096, 64, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &to, .num_sge = 1};
		CHECK(ibv_post_recv(b.qp, &wr, &bad) == 0);
		struct ibv_send_wr send = {.wr_id = i, .sg_list = cases[i].list, .num_sge = cases[i].n, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | cases[i].flags};
		post(&a, &send);
		wants(a.send, a.qp, i, IBV_WC_SUCCESS);
		CHECK(wants(b.recv, b.qp, i, IBV_WC_SUCCESS).byte_len == cases[i].bytes);
		send.opcode = IBV_WR_RDMA_WRITE;
		send.wr.rdma.remote_addr = (uintptr_t)memory;
		send.wr.rdma.rkey = cases[i].bytes ? mr->rkey : 0; /* a Write of no bytes needs no right */
		post(&a, &send);
		wants(a.send, a.qp, i, IBV_WC_SUCCESS);
	}
	finish(&a, &b);
}

/* Requests that fail: each has its status, and ends the connection. */
static void failures(void)
{
	struct ibv_sge word = {(uintptr_t)memory, 8, mr->lkey}, half = {(uintptr_t)memory, 4, mr->lkey}, bad = {(uintptr_t)memory, 8, 77};
	const struct {
		enum ibv_wr_opcode op;
		struct ibv_sge *sge;
		uint64_t at;
		uint32_t rkey;
		enum ibv_wc_status status;
	} cases[] = {
		{IBV_WR_ATOMIC_FETCH_AND_ADD, &word, 4, mr->rkey, IBV_WC_REM_INV_REQ_ERR}, /* not aligned */
		{IBV_WR_ATOMIC_CMP_AND_SWP, &word, 1, mr->rkey, IBV_WC_REM_INV_REQ_ERR},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, &word, 0, 77, IBV_WC_REM_ACCESS_ERR},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, &half, 0, mr->rkey, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, &bad, 0, mr->rkey, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_RDMA_READ, &word, 0, 77, IBV_WC_REM_ACCESS_ERR},
		{IBV_WR_RDMA_READ, &bad, 0, mr->rkey, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_SEND, &bad, 0, 0, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_RDMA_WRITE, &bad, 0, mr->rkey, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_LOCAL_INV, NULL, 0, 0, IBV_WC_LOC_PROT_ERR},
	};
	struct side a, b;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		connected(&a, &b, NULL);
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = cases[i].sge, .num_sge = cases[i].sge != NULL, .opcode = cases[i].op,
			.wr.rdma = {.remote_addr = (uintptr_t)memory + cases[i].at, .rkey = cases[i].rkey}};
		if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr.wr.atomic.remote_addr = (uintptr_t)memory + cases[i].at;
			wr.wr.atomic.rkey = cases[i].rkey;
		} else if (wr.opcode == IBV_WR_LOCAL_INV) {
			wr.invalidate_rkey = 77;
		}
		post(&a, &wr);
		wants(a.send, a.qp, i, cases[i].status);
		finish(&a, &b);
	}
}

static void post_receives(struct side *s, uint64_t from, uint64_t to)
{
	for (; from < to; from++) {
		struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = from, .sg_list = &sge, .num_sge = 1};
		CHECK(ibv_post_recv(s->qp, &wr, &bad) == 0);
	}
}

static int fail(struct side *s)
{
	return ibv_modify_qp(s->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE);
}

/* flushes moves a queue pair to ERR. Requests from before and after that are flushed. */
static void flushes(struct side *s)
{
	post_receives(s, 0, 3);
	CHECK(fail(s) == 0 && fail(s) == 0 && state_of(s->qp) == IBV_QPS_ERR);
	post_receives(s, 3, 4);
	post(s, &(struct ibv_send_wr){.wr_id = 9, .opcode = IBV_WR_SEND});
	for (uint64_t i = 0; i < 4; i++)
		wants(s->recv, s->qp, i, IBV_WC_WR_FLUSH_ERR);
	wants(s->send, s->qp, 9, IBV_WC_WR_FLUSH_ERR);
}

/* ERR flushes a queue pair in every state, whether it is connected or not. */
static void errors(void)
{
	struct rdma_conn_param p = depths;
	struct side a, b, fresh = {0};

	create(&fresh, NULL);
	flushes(&fresh);
	destroy(&fresh);
	connected(&a, &b, NULL);
	flushes(&a);
	flushes(&b);
	finish(&a, &b);
	prepare(&a, &b, NULL);
	if (roce) {
		move_to_rts(a.qp, b.qp->qp_num); /* the other one is in INIT */
		flushes(&a);
		flushes(&b);
	} else { /* one is connecting, the other one has a request */
		flushes(&b);
		CHECK(rdma_accept(b.id, &p) == -1 && errno == EINVAL);
		flushes(&a);
		cm_event(RDMA_CM_EVENT_CONNECT_ERROR);
	}
	finish(&a, &b);
	if (roce)
		return;
	prepare(&a, &b, NULL);
	CHECK(rdma_reject(b.id, NULL, 0) == 0);
	flushes(&b);
	cm_event(RDMA_CM_EVENT_REJECTED);
	flushes(&a);
	finish(&a, &b);
	a = (struct side){.id = resolve()};
	create(&a, NULL);
	flushes(&a);
	CHECK(rdma_connect(a.id, &p) == -1 && errno == EINVAL);
	destroy(&a);
}

static bool readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1; }

/* async takes the next asynchronous event. */
static enum ibv_event_type async(void **element)
{
	struct ibv_async_event e;

	CHECK(ibv_get_async_event(c, &e) == 0);
	*element = e.element.qp;
	ibv_ack_async_event(&e);
	return e.event_type;
}

/* A queue that overruns has an event, also if nobody polls it. Events that nobody read end with their queue pair. */
static void events(void)
{
	struct side a, b;
	struct ibv_cq *full;
	void *of;

	prepare(&a, &b, NULL);
	join(&a, &b);
	full = ibv_create_cq(c, 1, NULL, NULL, 0);
	CHECK(full && !readable(c->async_fd));
	struct ibv_qp_init_attr init = {.send_cq = full, .recv_cq = full, .cap = {DEPTH, DEPTH, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *q = ibv_create_qp(pd, &init);
	CHECK(q);
	struct side over = {.qp = q, .send = full, .recv = full};
	CHECK(ibv_modify_qp(q, &(struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1}, INIT) == 0);
	post_receives(&over, 0, DEPTH);
	CHECK(fail(&over) == 0);
	CHECK(async(&of) == IBV_EVENT_CQ_ERR && of == full);
	CHECK(ibv_destroy_qp(q) == 0 && ibv_destroy_cq(full) == 0);
	post(&a, &(struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sg_list = &(struct ibv_sge){(uintptr_t)memory, 8, mr->lkey},
		.num_sge = 1, .wr.rdma = {.remote_addr = 8, .rkey = 77}});
	wants(a.send, a.qp, 1, IBV_WC_REM_ACCESS_ERR);
	for (struct pollfd p = {.fd = c->async_fd, .events = POLLIN}; poll(&p, 1, -1) != 1;)
		;
	finish(&a, &b); /* with the events of both */
	CHECK(!readable(c->async_fd));
}

/* Memory behind the end of a file cannot be registered, whatever kind of mapping it is. */
static void files(void)
{
	char path[] = "/var/tmp/xwarp-requests-XXXXXX";
	const struct {
		int fd, flags;
	} kinds[] = {{mkstemp(path), MAP_SHARED}, {kinds[0].fd, MAP_PRIVATE}, {memfd_create("requests", 0), MAP_SHARED}};

	CHECK(unlink(path) == 0);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		CHECK(kinds[i].fd >= 0 && ftruncate(kinds[i].fd, 4096) == 0);
		for (int access = 0; access <= IBV_ACCESS_LOCAL_WRITE; access++) {
			char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, kinds[i].flags, kinds[i].fd, 0);
			CHECK(m != MAP_FAILED);
			errno = 0;
			CHECK(ibv_reg_mr(pd, m, 8192, access) == NULL && errno == EFAULT);
			struct ibv_mr *front = ibv_reg_mr(pd, m, 4096, access);
			CHECK(front && ibv_dereg_mr(front) == 0 && munmap(m, 8192) == 0);
		}
	}
}

/* rdma_set_option refuses levels and options that do not exist, and a TOS of several bytes, as the kernel does. */
static void options(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int on = 1, long_tos = 256;
	uint8_t tos = 255;

	CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
	CHECK(rdma_set_option(id, 7, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == -1 && errno == ENOSYS);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof on) == -1 && errno == ENOSYS);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) == 0);
	errno = 0;
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &long_tos, sizeof long_tos) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
}

/* The source port is known when the address is resolved, and is that of the connection. */
static void ports(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, to = at_own(PORT);
	struct rdma_conn_param p = depths;
	struct side a, b;

	if (roce) /* rdma_cm is the same */
		return;
	for (int bound = 0; bound < 2; bound++) {
		a = b = (struct side){0};
		CHECK(rdma_create_id(channel, &a.id, NULL, RDMA_PS_TCP) == 0);
		CHECK(!bound || rdma_bind_addr(a.id, (struct sockaddr *)&any) == 0);
		__be16 before = rdma_get_src_port(a.id);
		CHECK(bound ? before != 0 : before == 0);
		CHECK(rdma_resolve_addr(a.id, NULL, (struct sockaddr *)&to, 2000) == 0);
		cm_event(RDMA_CM_EVENT_ADDR_RESOLVED);
		__be16 port = rdma_get_src_port(a.id);
		CHECK(port != 0 && (!bound || port == before));
		CHECK(rdma_resolve_route(a.id, 2000) == 0);
		cm_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
		create(&a, NULL);
		CHECK(rdma_connect(a.id, &p) == 0);
		b.id = cm_event(RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(rdma_get_dst_port(b.id) == port);
		create(&b, NULL);
		join(&a, &b);
		CHECK(rdma_get_src_port(a.id) == port);
		finish(&a, &b);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {{"reads", reads}, {"receives", receives}, {"sends", sends}, {"failures", failures},
		     {"errors", errors}, {"events", events}, {"files", files}, {"options", options}, {"ports", ports}};

	CHECK(argc == 3);
	own = argv[2];
	open_device();
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		if (strcmp(tests[i].name, argv[1]) == 0) {
			tests[i].run();
			puts("all is well");
			return 0;
		}
	return 2;
}
