/* restart s ADDRESS: a server whose daemon is restarted after it printed "connected". Identifiers with a device get
 * DEVICE_REMOVAL; those without one get no event, and listen or can listen again. restart c ADDRESS connects to it. */
#include "ends.h"

#include <fcntl.h>

static struct rdma_event_channel *channel;

static struct rdma_cm_id *bound(const char *at, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct rdma_cm_id *id;

	CHECK(inet_pton(AF_INET, at, &a.sin_addr) == 1 && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&a) == 0);
	return id;
}

static struct rdma_cm_event *next(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;

	CHECK(rdma_get_cm_event(channel, &e) == 0);
	if (e->event != want) {
		fprintf(stderr, "%s, want %s\n", rdma_event_str(e->event), rdma_event_str(want));
		exit(1);
	}
	return e;
}

static struct rdma_cm_id *connected(struct rdma_cm_id *listener)
{
	struct ibv_qp_init_attr a = queues(NULL);
	struct rdma_cm_event *e = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = e->id;

	CHECK(e->listen_id == listener && rdma_ack_cm_event(e) == 0);
	CHECK(rdma_create_qp(id, NULL, &a) == 0 && rdma_accept(id, NULL) == 0);
	CHECK(rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED)) == 0);
	return id;
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static void server(const char *at)
{
	channel = rdma_create_event_channel();
	struct rdma_cm_id *wild = bound("0.0.0.0", PORT), *loopback = bound("127.0.0.1", PORT + 1);
	struct rdma_cm_id *idle = bound("0.0.0.0", PORT + 2), *doomed = bound("0.0.0.0", PORT + 3);
	struct rdma_cm_id *named = bound(at, PORT + 4);
	CHECK(rdma_listen(loopback, 8) == 0 && rdma_listen(doomed, 8) == 0 && rdma_listen(named, 8) == 0);
	CHECK(rdma_listen(wild, 8) == 0);
	struct rdma_cm_id *peer = connected(wild);
	say("connected");

	struct rdma_cm_id *removed = NULL;
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *e = next(RDMA_CM_EVENT_DEVICE_REMOVAL);
		CHECK((e->id == peer || e->id == named) && e->id != removed);
		removed = e->id;
		CHECK(rdma_ack_cm_event(e) == 0);
	}
	rdma_destroy_qp(peer);
	CHECK(rdma_destroy_id(peer) == 0 && rdma_destroy_id(named) == 0);
	CHECK(rdma_destroy_id(doomed) == 0); /* while it waits for the daemon */
	say("lost");

	peer = connected(wild);
	CHECK(rdma_listen(idle, 8) == 0);
	rdma_destroy_qp(peer);
	CHECK(rdma_destroy_id(peer) == 0 && rdma_destroy_id(wild) == 0);
	CHECK(rdma_destroy_id(idle) == 0 && rdma_destroy_id(loopback) == 0);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	struct rdma_cm_event *e;
	CHECK(rdma_get_cm_event(channel, &e) == -1 && errno == EAGAIN);
	rdma_destroy_event_channel(channel);
	say("all is well");
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (argv[1][0] == 's') {
		server(argv[2]);
		return 0;
	}
	struct rdma_addrinfo *res = address(argv[2], 0);
	struct ibv_qp_init_attr a = queues(NULL);
	struct rdma_cm_id *id;
	CHECK(rdma_create_ep(&id, res, NULL, &a) == 0 && rdma_connect(id, NULL) == 0);
	pause();
	return 0;
}
