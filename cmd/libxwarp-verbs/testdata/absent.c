/* absent ADDRESS: no host has ADDRESS. rdma_resolve_addr must fail after its timeout, not earlier. */
#include "ends.h"

#include <time.h>

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id, *sync;

	CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &a.sin_addr) == 1);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	for (int i = 0; i < 2; i++) { /* an identifier may be resolved again */
		long begin = now_ms();
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 500) == 0);
		CHECK(rdma_resolve_route(id, 500) == -1 && errno == EINVAL);
		CHECK(rdma_get_cm_event(channel, &e) == 0 && e->id == id);
		CHECK(e->event == RDMA_CM_EVENT_ADDR_ERROR && e->status == -ETIMEDOUT && now_ms() - begin >= 450);
		CHECK(rdma_ack_cm_event(e) == 0);
	}
	CHECK(rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(sync, NULL, (struct sockaddr *)&a, 300) == -1 && errno == ETIMEDOUT && rdma_destroy_id(sync) == 0);
	/* Destroying it does not wait for the reply. */
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 600000) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	puts("all is well");
	return 0;
}
