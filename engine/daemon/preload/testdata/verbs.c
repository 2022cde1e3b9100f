/* A program of verbs for what no program of Debian's asks for: verbs TEST s ADDRESS on one host, verbs TEST c ADDRESS on
 * the other one. It ends with 0 when everything was as the man pages of verbs have it. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                  \
	do                                                                                                \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "line %d: %s is false (errno %s)\n", __LINE__, #condition, strerror(errno)); \
			exit(1);                                                                          \
		}                                                                                         \
	while (0)

enum { SIZE = 4096, PORT = 7200 };

static char buffer[SIZE] __attribute__((aligned(4096)));

/* end is one connection, or a listener that it comes from. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
};

static struct rdma_addrinfo *address(const char *at, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;
	char port[8];

	snprintf(port, sizeof port, "%d", PORT);
	CHECK(rdma_getaddrinfo((char *)at, port, &hints, &res) == 0);
	return res;
}

static struct rdma_cm_id *listen_at(const char *at)
{
	struct rdma_addrinfo *res = address(at, RAI_PASSIVE);
	struct rdma_cm_id *id;

	CHECK(rdma_create_ep(&id, res, NULL, NULL) == 0);
	CHECK(rdma_listen(id, 8) == 0);
	rdma_freeaddrinfo(res);
	return id;
}

static struct ibv_qp_init_attr queues(struct ibv_srq *srq)
{
	return (struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .srq = srq, .sq_sig_all = 1,
		.cap = {.max_send_wr = 16, .max_recv_wr = srq ? 0 : 16, .max_send_sge = 2, .max_recv_sge = srq ? 0 : 2}};
}

static void register_buffer(struct end *e, int access)
{
	CHECK((e->mr = ibv_reg_mr(e->id->pd, buffer, SIZE, IBV_ACCESS_LOCAL_WRITE | access)) != NULL);
}

static void post_recv(struct end *e, uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer + id * 64, .length = 64, .lkey = e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	if (e->id->qp->srq)
		CHECK(ibv_post_srq_recv(e->id->qp->srq, &wr, &bad) == 0);
	else
		CHECK(ibv_post_recv(e->id->qp, &wr, &bad) == 0);
}

static struct ibv_wc complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

/* received waits for a message and returns where it was put. */
static uint64_t received(struct end *e)
{
	struct ibv_wc wc = complete(e->id->recv_cq);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.qp_num == e->id->qp->qp_num);
	CHECK(wc.wr_id < SIZE / 64);
	return wc.wr_id;
}

static void post_send(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(e->id->qp, wr, &bad) == 0);
}

static void send_octets(struct end *e, const char *text)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = (uint32_t)strlen(text) + 1, .lkey = e->mr->lkey};

	memcpy(buffer, text, sge.length);
	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	CHECK(complete(e->id->send_cq).status == IBV_WC_SUCCESS);
}

static void dial(struct end *e, const char *at, int recvs)
{
	struct rdma_addrinfo *res = address(at, 0);
	struct ibv_qp_init_attr a = queues(NULL);
	struct rdma_conn_param p = {.responder_resources = 1, .initiator_depth = 1};

	CHECK(rdma_create_ep(&e->id, res, NULL, &a) == 0);
	rdma_freeaddrinfo(res);
	register_buffer(e, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	for (int i = 0; i < recvs; i++)
		post_recv(e, (uint64_t)i + 1);
	CHECK(rdma_connect(e->id, &p) == 0);
}

/* answer takes the next connection; with queues of its own when srq is NULL. */
static void answer(struct end *e, struct rdma_cm_id *listener, struct ibv_srq *srq, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr a = queues(srq);

	if (!e->id)
		CHECK(rdma_get_request(listener, &e->id) == 0);
	CHECK(rdma_create_qp(e->id, pd, &a) == 0);
}

static void accept_it(struct end *e)
{
	struct rdma_conn_param p = {.responder_resources = 1, .initiator_depth = 1};

	CHECK(rdma_accept(e->id, &p) == 0);
}

static void hang_up(struct end *e)
{
	rdma_disconnect(e->id);
	if (e->mr)
		CHECK(ibv_dereg_mr(e->mr) == 0);
	rdma_destroy_ep(e->id);
}

/* event waits for an asynchronous one. */
static void event(struct ibv_context *c, enum ibv_event_type want, void *element)
{
	struct ibv_async_event e;

	CHECK(ibv_get_async_event(c, &e) == 0);
	if (e.event_type != want)
		fprintf(stderr, "%s\n", ibv_event_type_str(e.event_type));
	CHECK(e.event_type == want && (void *)e.element.qp == element);
	ibv_ack_async_event(&e);
}

static bool quiet(struct ibv_context *c)
{
	struct pollfd p = {.fd = c->async_fd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

/* Two connections share a receive queue, which tells when it runs low. */
static void srq_server(struct rdma_cm_id *listener)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 8, .max_sge = 2}};
	struct ibv_srq_attr limit = {.srq_limit = 6}, now;
	struct ibv_recv_wr wr = {0}, *bad;
	struct end first = {0}, second = {0};

	CHECK(rdma_get_request(listener, &first.id) == 0);
	CHECK(rdma_create_srq(first.id, NULL, &a) == 0 && a.attr.max_wr >= 8 && a.attr.max_sge >= 2);
	struct ibv_srq *srq = first.id->srq;
	struct ibv_context *c = first.id->verbs;
	answer(&first, listener, srq, first.id->pd);
	register_buffer(&first, 0);
	second.mr = NULL;
	for (uint64_t i = 1; i <= 8; i++)
		post_recv(&first, i);
	accept_it(&first);
	answer(&second, listener, srq, first.id->pd);
	accept_it(&second);
	CHECK(first.id->qp->srq == srq && ibv_post_recv(first.id->qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 100}, IBV_SRQ_LIMIT) == EINVAL);
	CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0 && ibv_query_srq(srq, &now) == 0);
	CHECK(now.srq_limit == 6 && now.max_wr >= 8 && ibv_destroy_srq(srq) == EBUSY);
	send_octets(&first, "go");
	CHECK(strcmp(buffer + 64 * received(&first), "one") == 0);
	CHECK(strcmp(buffer + 64 * received(&second), "two") == 0);
	CHECK(quiet(c)); /* 6 wait */
	send_octets(&first, "go");
	CHECK(strcmp(buffer + 64 * received(&first), "three") == 0);
	event(c, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	CHECK(ibv_query_srq(srq, &now) == 0 && now.srq_limit == 0);
	struct ibv_qp *qp = second.id->qp;
	send_octets(&first, "go");
	event(c, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	rdma_destroy_ep(second.id);
	qp = first.id->qp;
	rdma_disconnect(first.id);
	event(c, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	CHECK(ibv_dereg_mr(first.mr) == 0);
	rdma_destroy_ep(first.id);
}

static void srq_client(const char *at)
{
	struct end first = {0}, second = {0};

	dial(&first, at, 3);
	dial(&second, at, 0);
	received(&first);
	send_octets(&first, "one");
	send_octets(&second, "two");
	received(&first);
	send_octets(&first, "three");
	received(&first);
	hang_up(&second);
	hang_up(&first);
}

/* A peer that reaches for memory that is not its own is an asynchronous error of the queue pair. */
static void access_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	accept_it(&e);
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	hang_up(&e);
}

static void access_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 0);
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = e.mr->lkey};
	post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = 4096, .rkey = 0x12345678}});
	CHECK(complete(e.id->send_cq).status == IBV_WC_REM_ACCESS_ERR);
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	hang_up(&e);
}

/* remote is a region as one tells it the other one. */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

static void tell(struct end *e)
{
	struct remote r = {(uintptr_t)buffer + SIZE / 2, e->mr->rkey};
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = sizeof r, .lkey = e->mr->lkey};

	memcpy(buffer, &r, sizeof r);
	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	CHECK(complete(e->id->send_cq).status == IBV_WC_SUCCESS);
}

static struct remote hear(struct end *e)
{
	struct remote r;

	memcpy(&r, buffer + 64 * received(e), sizeof r);
	return r;
}

/* Immediate data come behind a Write. A Send invalidates a region, which nobody reaches any more then. */
static void extended_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_REMOTE_WRITE);
	for (uint64_t i = 1; i <= 2; i++)
		post_recv(&e, i);
	accept_it(&e);
	tell(&e);
	struct ibv_wc wc = complete(e.id->recv_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == 1);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(0xcafe));
	CHECK(strcmp(buffer + SIZE / 2, "written") == 0);
	wc = complete(e.id->recv_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 2);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == e.mr->rkey);
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	CHECK(strcmp(buffer + SIZE / 2, "written") == 0);
	hang_up(&e);
}

static void extended_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 1);
	struct remote r = hear(&e);
	strcpy(buffer, "written");
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = e.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htobe32(0xcafe), .wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}};
	post_send(&e, &wr);
	struct ibv_wc wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = r.rkey});
	CHECK(complete(e.id->send_cq).status == IBV_WC_SUCCESS);
	strcpy(buffer, "too late");
	wr.opcode = IBV_WR_RDMA_WRITE;
	post_send(&e, &wr);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_RDMA_READ, .wr.rdma = {.rkey = r.rkey}});
	for (int i = 0; i < 2; i++)
		wc = complete(e.id->send_cq); /* of the Write: TCP had it, or the error was faster */
	CHECK(wc.status != IBV_WC_SUCCESS);
	hang_up(&e);
}

/* A region that is invalidated here serves nobody any more, and can be deregistered. */
static void local_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_REMOTE_WRITE);
	accept_it(&e);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = e.mr->rkey});
	struct ibv_wc wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = e.mr->lkey};
	post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	CHECK(complete(e.id->send_cq).status == IBV_WC_LOC_PROT_ERR);
	hang_up(&e);
}

static void local_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 1);
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	hang_up(&e);
}

enum { MESSAGES = 1000, WINDOW = 8 };

static volatile bool resizing;

static void *resize(void *cq)
{
	resizing = true;
	for (int i = 0; resizing; i++)
		CHECK(ibv_resize_cq(cq, 16 << i % 6) == 0 && ((struct ibv_cq *)cq)->cqe >= 16 << i % 6);
	return NULL;
}

/* A completion queue gets longer and shorter while it is used: none of its completions is lost, and they stay in order. */
static void resize_server(struct rdma_cm_id *listener)
{
	struct end e = {0};
	pthread_t thread;

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	for (uint64_t i = 1; i <= WINDOW; i++)
		post_recv(&e, i);
	accept_it(&e);
	CHECK(pthread_create(&thread, NULL, resize, e.id->recv_cq) == 0);
	for (int i = 0; i < MESSAGES; i++) {
		uint64_t id = received(&e);
		CHECK(id == (uint64_t)i % WINDOW + 1 && memcmp(buffer + 64 * id, &i, sizeof i) == 0);
		post_recv(&e, id);
		send_octets(&e, "go");
	}
	resizing = false;
	pthread_join(thread, NULL);
	CHECK(ibv_resize_cq(e.id->recv_cq, 0) == EINVAL && ibv_resize_cq(e.id->recv_cq, 1 << 30) == EINVAL);
	hang_up(&e);
}

static void resize_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, WINDOW);
	for (int i = 0; i < MESSAGES + WINDOW; i++) {
		if (i >= WINDOW) {
			uint64_t id = received(&e);
			if (i < MESSAGES)
				post_recv(&e, id);
		}
		if (i < MESSAGES) {
			struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = sizeof i, .lkey = e.mr->lkey};
			memcpy(buffer, &i, sizeof i);
			post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
			CHECK(complete(e.id->send_cq).status == IBV_WC_SUCCESS);
		}
	}
	hang_up(&e);
}

static const struct {
	const char *name;
	void (*server)(struct rdma_cm_id *listener);
	void (*client)(const char *at);
} tests[] = {
	{"srq", srq_server, srq_client},
	{"access", access_server, access_client},
	{"extended", extended_server, extended_client},
	{"local", local_server, local_client},
	{"resize", resize_server, resize_client},
};

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		if (strcmp(tests[i].name, argv[1]) != 0)
			continue;
		if (argv[2][0] == 's') {
			struct rdma_cm_id *listener = listen_at(argv[3]);
			tests[i].server(listener);
			rdma_destroy_ep(listener);
		} else {
			tests[i].client(argv[3]);
		}
		puts("all is well");
		return 0;
	}
	return 2;
}
