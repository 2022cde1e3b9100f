/* Shared code of programs that test functions which no program of Debian uses: PROGRAM TEST s ADDRESS on one host,
 * PROGRAM TEST c ADDRESS on the other. The exit status is 0 if verbs behave as documented in the man pages. */
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
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

#include "check.h"

enum { SIZE = 4096, PORT = 7200 };

static bool quiet_sends; /* Sends are unsignaled unless requested */
#ifndef EACH_THREAD
#define EACH_THREAD /* _Thread_local: a buffer per thread */
#endif
static EACH_THREAD char buffer[SIZE] __attribute__((aligned(4096)));

/* end is one connection, or the listener that accepted it. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
};

static int port = PORT;

static struct rdma_addrinfo *address(const char *at, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;
	char service[8];

	snprintf(service, sizeof service, "%d", port);
	CHECK(rdma_getaddrinfo((char *)at, service, &hints, &res) == 0);
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
	return (struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .srq = srq, .sq_sig_all = !quiet_sends,
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

/* received waits for a message and returns its location. */
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

static void send_bytes(struct end *e, const char *text)
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

/* answer gets the next connection request and creates its queue pair, which has its own receive queue if srq is
 * NULL. accept_it accepts the request. */
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

/* event waits for an asynchronous event. */
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

/* remote is a region as advertised to the other end. */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

static void tell_key(struct end *e, uint32_t rkey)
{
	struct remote r = {(uintptr_t)buffer + SIZE / 2, rkey};
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = sizeof r, .lkey = e->mr->lkey};

	memcpy(buffer, &r, sizeof r);
	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	CHECK(complete(e->id->send_cq).status == IBV_WC_SUCCESS);
}

static void tell(struct end *e) { tell_key(e, e->mr->rkey); }

static struct remote hear(struct end *e)
{
	struct remote r;

	memcpy(&r, buffer + 64 * received(e), sizeof r);
	return r;
}

struct test {
	const char *name;
	void (*server)(struct rdma_cm_id *listener);
	void (*client)(const char *at);
};

/* run implements main. The last entry of tests has no name. */
static int run(const struct test *tests, int argc, char **argv)
{
	CHECK(argc == 4);
	for (; tests->name; tests++) {
		if (strcmp(tests->name, argv[1]) != 0)
			continue;
		if (argv[2][0] == 's') {
			struct rdma_cm_id *listener = listen_at(argv[3]);
			tests->server(listener);
			rdma_destroy_ep(listener);
		} else {
			tests->client(argv[3]);
		}
		puts("all is well");
		return 0;
	}
	return 2;
}
