/* Behaviour documented in the man pages of rdma_cm. */
#include "ends.h"

/* rdma_get_request(3): the new identifier owns the event until the request is answered. The listener does not wait
 * for that. */
static void request_server(struct rdma_cm_id *first)
{
	struct ibv_qp_init_attr a = queues(NULL);
	struct rdma_conn_param p = {.private_data = "welcome", .private_data_len = 8};
	struct rdma_cm_id *id, *second;

	port = PORT + 1;
	second = listen_at(inet_ntoa(((struct sockaddr_in *)rdma_get_local_addr(first))->sin_addr));
	CHECK(rdma_get_request(second, &id) == 0);
	rdma_destroy_ep(second);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && id->event->id == id);
	CHECK(id->event->param.conn.private_data_len >= 7 && strcmp(id->event->param.conn.private_data, "secret") == 0);
	CHECK(!id->qp && rdma_create_qp(id, NULL, &a) == 0);
	CHECK(rdma_accept(id, &p) == 0 && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	CHECK(rdma_get_request(first, &id) == 0 && id->event && rdma_reject(id, NULL, 0) == 0);
	rdma_destroy_ep(id);
}

static void request_client(const char *at)
{
	struct rdma_conn_param p = {.private_data = "secret", .private_data_len = 7};
	struct rdma_cm_id *id = NULL;
	int error;

	port = PORT + 1;
	do { /* until it listens */
		struct rdma_addrinfo *res = address(at, 0);
		struct ibv_qp_init_attr a = queues(NULL);
		if (id)
			rdma_destroy_ep(id);
		CHECK(rdma_create_ep(&id, res, NULL, &a) == 0);
		rdma_freeaddrinfo(res);
		error = rdma_connect(id, &p) == 0 ? 0 : errno;
	} while (error == ECONNREFUSED);
	CHECK(error == 0 && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(id->event->param.conn.private_data_len >= 8 && strcmp(id->event->param.conn.private_data, "welcome") == 0);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	port = PORT;
	struct rdma_addrinfo *res = address(at, 0);
	struct ibv_qp_init_attr a = queues(NULL);
	CHECK(rdma_create_ep(&id, res, NULL, &a) == 0 && rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	rdma_freeaddrinfo(res);
	rdma_destroy_ep(id);
}

/* Queues and protection domain: those of the program, of the identifier, or the device's default. Those of the
 * identifier are destroyed once. */
static void queues_server(struct rdma_cm_id *listener)
{
	struct ibv_qp_init_attr a = queues(NULL), shared = queues(NULL), mine = queues(NULL);
	struct rdma_cm_id *id;

	CHECK(rdma_get_request(listener, &id) == 0 && id->pd && id->pd->context == id->verbs);
	struct ibv_pd *standard = id->pd;
	/* New queues, for each direction. */
	CHECK(rdma_create_qp(id, NULL, &a) == 0 && id->qp->pd == standard && id->send_cq && id->recv_cq);
	CHECK(a.send_cq == id->send_cq && a.recv_cq == id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel && !id->recv_cq_channel);
	/* One queue for both directions, as in rsockets. */
	CHECK((id->recv_cq_channel = id->send_cq_channel = ibv_create_comp_channel(id->verbs)) != NULL);
	CHECK((id->recv_cq = id->send_cq = ibv_create_cq(id->verbs, 16, id, id->recv_cq_channel, 0)) != NULL);
	CHECK(rdma_create_qp(id, NULL, &shared) == 0 && id->qp->send_cq == id->send_cq && id->qp->recv_cq == id->send_cq);
	rdma_destroy_qp(id);
	CHECK(!id->send_cq && !id->recv_cq && !id->send_cq_channel && !id->recv_cq_channel);
	/* Those of the program are not destroyed. */
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	mine.send_cq = mine.recv_cq = cq;
	CHECK(cq && pd && rdma_create_qp(id, pd, &mine) == 0 && id->qp->pd == pd && id->qp->send_cq == cq && id->qp->recv_cq == cq);
	rdma_destroy_qp(id);
	CHECK(id->pd == pd && ibv_dealloc_pd(pd) == 0);
	id->pd = standard;
	/* A queue that does not belong to the identifier is not destroyed. */
	CHECK((id->recv_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0)) != NULL);
	CHECK(rdma_create_qp(id, NULL, &mine) == -1 && errno == EINVAL && id->recv_cq);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(id->recv_cq) == 0);
	id->recv_cq = NULL;
	/* The identifier's receive queue is used if none is given. */
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr b = queues(NULL);
	CHECK(rdma_create_srq(id, NULL, &srq) == 0 && id->srq->pd == standard);
	CHECK(rdma_create_qp(id, NULL, &b) == 0 && id->qp->srq == id->srq);
	rdma_destroy_qp(id);
	CHECK(rdma_reject(id, "no", 3) == 0);
	rdma_destroy_ep(id);
}

static void refused_client(const char *at)
{
	struct rdma_addrinfo *res = address(at, 0);
	struct ibv_qp_init_attr a = queues(NULL);
	struct rdma_cm_id *id;

	CHECK(rdma_create_ep(&id, res, NULL, &a) == 0);
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED && id->event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(id->event->status && id->event->param.conn.private_data_len >= 3 &&
	      strcmp(id->event->param.conn.private_data, "no") == 0);
	rdma_freeaddrinfo(res);
	rdma_destroy_ep(id);
}

/* The listener is not bound: it gets a port of the kernel's choice on all addresses, as in the kernel. */
static void unbound_server(struct rdma_cm_id *listener)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 && rdma_listen(id, 1) == 0);
	CHECK(rdma_get_src_port(id) != 0 && rdma_get_local_addr(id)->sa_family == AF_INET);
	CHECK(rdma_listen(id, 1) == -1 && errno == EINVAL && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	CHECK(rdma_get_request(listener, &id) == 0 && rdma_reject(id, "no", 3) == 0);
	rdma_destroy_ep(id);
}

/* bind_at binds a new identifier. It returns 0 or errno of rdma_bind_addr. */
static int bind_at(struct rdma_event_channel *channel, struct rdma_cm_id **id, in_addr_t at, uint16_t at_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(at_port), .sin_addr.s_addr = at};

	CHECK(rdma_create_id(channel, id, NULL, RDMA_PS_TCP) == 0);
	return rdma_bind_addr(*id, (struct sockaddr *)&a) == 0 ? 0 : errno;
}

/* rdma_bind_addr(3): a port is in use if another listener has it at the address, or at any address for a wildcard.
 * The OSDs of Ceph try one port after the other. */
static void ports_server(struct rdma_cm_id *listener)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	in_addr_t at = ((struct sockaddr_in *)rdma_get_local_addr(listener))->sin_addr.s_addr, lo = htonl(INADDR_LOOPBACK);
	const uint16_t other = PORT + 1;
	struct rdma_cm_id *id, *local, *second;

	CHECK(bind_at(channel, &id, at, PORT) == EADDRINUSE && rdma_destroy_id(id) == 0);
	CHECK(bind_at(channel, &id, INADDR_ANY, PORT) == EADDRINUSE && rdma_destroy_id(id) == 0);
	CHECK(bind_at(channel, &local, lo, PORT) == 0 && rdma_listen(local, 1) == 0);
	CHECK(bind_at(channel, &id, lo, other) == 0 && bind_at(channel, &second, INADDR_ANY, other) == 0);
	CHECK(rdma_listen(id, 1) == 0 && rdma_listen(second, 1) == -1 && errno == EADDRINUSE && rdma_destroy_id(second) == 0);
	CHECK(bind_at(channel, &second, at, other) == 0 && rdma_listen(second, 1) == 0); /* the wildcard left no listener */
	CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(second) == 0 && rdma_destroy_id(local) == 0);
	CHECK(bind_at(channel, &id, INADDR_ANY, other) == 0 && rdma_listen(id, 1) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	CHECK(rdma_get_request(listener, &id) == 0 && rdma_reject(id, "no", 3) == 0);
	rdma_destroy_ep(id);
}

/* rdma_connect(3), rdma_accept(3), rdma_get_cm_event(3): each end states how many Reads and atomics it responds to
 * and initiates. The events have the numbers of the other end. */
static void depth_server(struct rdma_cm_id *listener)
{
	static const struct {
		struct rdma_conn_param param, want; /* want: expected in the request */
		bool none;			    /* accept without param: the numbers of the request apply */
	} cases[] = {
		{.param = {.responder_resources = 4, .initiator_depth = 3}, .want = {.responder_resources = 4, .initiator_depth = 5}},
		{.param = {.responder_resources = 2, .initiator_depth = 1}, .want = {.responder_resources = 4, .initiator_depth = 5}},
		{.none = true, .want = {.responder_resources = 4, .initiator_depth = 5}},
		{.none = true, .want = {.responder_resources = 16, .initiator_depth = 16}},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rdma_conn_param p = cases[i].param, deep = {.responder_resources = 17}, *got;
		struct ibv_qp_init_attr a = queues(NULL);
		struct rdma_cm_id *id;
		CHECK(rdma_get_request(listener, &id) == 0 && rdma_create_qp(id, NULL, &a) == 0);
		got = &id->event->param.conn;
		CHECK(got->responder_resources == cases[i].want.responder_resources);
		CHECK(got->initiator_depth == cases[i].want.initiator_depth);
		CHECK(rdma_accept(id, &deep) == -1 && errno == EINVAL);
		CHECK(rdma_accept(id, cases[i].none ? NULL : &p) == 0);
		rdma_disconnect(id);
		rdma_destroy_ep(id);
	}
}

static void depth_client(const char *at)
{
	static const struct rdma_conn_param answers[] = { /* initiator_depth: at most what this end requested */
		{.responder_resources = 3, .initiator_depth = 4},
		{.responder_resources = 1, .initiator_depth = 2},
		{.responder_resources = 5, .initiator_depth = 4},
		{.responder_resources = 16, .initiator_depth = 16},
	};

	for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
		struct rdma_conn_param p = {.responder_resources = 5, .initiator_depth = 4}, deep = {.initiator_depth = 17}, *got;
		struct rdma_addrinfo *res = address(at, 0);
		struct ibv_qp_init_attr a = queues(NULL);
		struct rdma_cm_id *id;
		CHECK(rdma_create_ep(&id, res, NULL, &a) == 0 && rdma_connect(id, &deep) == -1 && errno == EINVAL);
		rdma_freeaddrinfo(res);
		CHECK(rdma_connect(id, i == 3 ? NULL : &p) == 0);
		got = &id->event->param.conn;
		CHECK(got->initiator_depth == answers[i].initiator_depth);
		CHECK(got->responder_resources == answers[i].responder_resources);
		rdma_disconnect(id);
		rdma_destroy_ep(id);
	}
}

static const struct test tests[] = {
	{"request", request_server, request_client},
	{"queues", queues_server, refused_client},
	{"depth", depth_server, depth_client},
	{"unbound", unbound_server, refused_client},
	{"ports", ports_server, refused_client},
	{0},
};

int main(int argc, char **argv) { return run(tests, argc, argv); }
