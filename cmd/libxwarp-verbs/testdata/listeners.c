/* Listeners are created and destroyed while peers connect: listeners s ADDRESS on one host; listeners c ADDRESS,
 * which never exits, on another. */
#include "ends.h"

enum { LISTENERS = 60, REQUESTS = 3 };

static void server(const char *at)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	CHECK(inet_pton(AF_INET, at, &a.sin_addr) == 1);
	for (int i = 0; i < LISTENERS; i++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		struct rdma_cm_event *e;
		struct rdma_cm_id *id, *peer;
		CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_bind_addr(id, (struct sockaddr *)&a) == 0 && rdma_listen(id, 0) == 0);
		for (int n = 0; n < REQUESTS; n++) { /* more requests are pending */
			CHECK(rdma_get_cm_event(channel, &e) == 0);
			peer = e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? e->id : NULL;
			CHECK(rdma_ack_cm_event(e) == 0 && peer && rdma_destroy_id(peer) == 0);
		}
		CHECK(rdma_destroy_id(id) == 0);
		rdma_destroy_event_channel(channel);
	}
}

static void *connector(void *at)
{
	for (;;) {
		struct rdma_addrinfo *res = address(at, 0);
		struct ibv_qp_init_attr a = queues(NULL);
		struct rdma_cm_id *id;
		if (rdma_create_ep(&id, res, NULL, &a) == 0) {
			rdma_connect(id, NULL);
			rdma_destroy_ep(id);
		}
		rdma_freeaddrinfo(res);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	CHECK(argc == 3);
	if (argv[1][0] == 's') {
		server(argv[2]);
		puts("all is well");
		return 0;
	}
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&thread, NULL, connector, argv[2]) == 0);
	pause();
	return 0;
}
