/* Queues and their events. */
#include "ends.h"

/* Two connections share a receive queue, which reports when it runs low. */
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
	send_bytes(&first, "go");
	CHECK(strcmp(buffer + 64 * received(&first), "one") == 0);
	CHECK(strcmp(buffer + 64 * received(&second), "two") == 0);
	CHECK(quiet(c)); /* 6 receives are left */
	send_bytes(&first, "go");
	CHECK(strcmp(buffer + 64 * received(&first), "three") == 0);
	event(c, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	CHECK(ibv_query_srq(srq, &now) == 0 && now.srq_limit == 0);
	struct ibv_qp *qp = second.id->qp;
	send_bytes(&first, "go");
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
	send_bytes(&first, "one");
	send_bytes(&second, "two");
	received(&first);
	send_bytes(&first, "three");
	received(&first);
	hang_up(&second);
	hang_up(&first);
}

/* A peer that accesses memory without permission causes an asynchronous error of the queue pair. */
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

/* Immediate data follows a Write. A Send invalidates a region, which peers can no longer access. */
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
		wc = complete(e.id->send_cq); /* of the Write: acknowledged by TCP before the error, or not */
	CHECK(wc.status != IBV_WC_SUCCESS);
	hang_up(&e);
}

/* A locally invalidated region is inaccessible, and can be deregistered. */
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

/* A completion queue is resized while in use: no completion is lost, and their order is kept. */
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
		send_bytes(&e, "go");
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

static const struct test tests[] = {
	{"srq", srq_server, srq_client},
	{"access", access_server, access_client},
	{"extended", extended_server, extended_client},
	{"local", local_server, local_client},
	{"resize", resize_server, resize_client},
	{0},
};

int main(int argc, char **argv) { return run(tests, argc, argv); }
