/* Connections are opened and closed on several threads. Two threads post to each queue pair and poll its completion
 * queue; one of them disconnects every other time. Other threads create and destroy objects that connections need.
 * The thread sanitizer checks all of it. */
#define EACH_THREAD _Thread_local
#include <stdatomic.h>

#include "ends.h"

enum { THREADS = 4, CONNECTIONS = 6, WRITES = 100, LEN = 64 };

static pthread_mutex_t one_listener = PTHREAD_MUTEX_INITIALIZER;

/* writer posts half of the Writes of a connection, and polls completions of both halves. */
struct writer {
	struct end *end;
	struct remote to;
	char *from;
	int half;
	bool cut; /* the connection ends during the Writes */
	atomic_int *under_way, *done;
};

static void take(struct writer *w)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(w->end->id->send_cq, 1, &wc);

	CHECK(n == 0 || (n == 1 && (wc.status == IBV_WC_SUCCESS || (w->cut && wc.status == IBV_WC_WR_FLUSH_ERR))));
	atomic_fetch_sub(w->under_way, n);
	atomic_fetch_add(w->done, n);
}

static void *write_half(void *arg)
{
	struct writer *w = arg;

	for (int i = 0; i < WRITES / 2; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)w->from + w->half * LEN, .length = LEN, .lkey = w->end->mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = w->to.addr + w->half * LEN, .rkey = w->to.rkey}};

		while (atomic_fetch_add(w->under_way, 1) >= 16) {
			atomic_fetch_sub(w->under_way, 1);
			take(w);
		}
		post_send(w->end, &wr);
		if (w->cut && w->half == 0 && i == WRITES / 4)
			CHECK(rdma_disconnect(w->end->id) == 0);
	}
	while (atomic_load(w->done) < WRITES)
		take(w);
	return NULL;
}

/* message waits for a message with a completion channel. It returns false if the connection ended. */
static bool message(struct end *e)
{
	struct ibv_cq *cq = e->id->recv_cq;
	struct ibv_wc wc;
	void *context;
	int n;

	while (ibv_req_notify_cq(cq, 0) == 0 && (n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		CHECK(ibv_get_cq_event(e->id->recv_cq_channel, &cq, &context) == 0 && cq == e->id->recv_cq);
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(n == 1 && (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR));
	return wc.status == IBV_WC_SUCCESS;
}

static void *serve(void *listener)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		struct end e = {0};

		pthread_mutex_lock(&one_listener);
		CHECK(rdma_get_request(listener, &e.id) == 0);
		pthread_mutex_unlock(&one_listener);
		answer(&e, NULL, NULL, NULL);
		register_buffer(&e, IBV_ACCESS_REMOTE_WRITE);
		memset(buffer, 0, SIZE);
		post_recv(&e, 1);
		accept_it(&e);
		tell(&e);
		bool whole = message(&e);
		for (int k = 0; whole && k < 2 * LEN; k++)
			CHECK(buffer[SIZE / 2 + k] == 'a' + k / LEN);
		hang_up(&e);
	}
	return NULL;
}

static void *ask(void *at)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		struct end e = {0};
		struct writer w[2];
		atomic_int under_way = 0, done = 0;
		pthread_t other;

		dial(&e, at, 1);
		w[0] = (struct writer){&e, hear(&e), buffer + SIZE / 2, 0, i % 2 == 1, &under_way, &done};
		w[1] = w[0];
		w[1].half = 1;
		memset(w[0].from, 'a', LEN);
		memset(w[0].from + LEN, 'b', LEN);
		CHECK(pthread_create(&other, NULL, write_half, &w[1]) == 0);
		write_half(&w[0]);
		pthread_join(other, NULL);
		if (!w[0].cut)
			send_bytes(&e, "done");
		hang_up(&e);
	}
	return NULL;
}

static atomic_bool over;

/* meddle creates and destroys objects concurrently with the connections. */
static void *meddle(void *verbs)
{
	static char bytes[4][SIZE];
	static atomic_int next;
	char *mine = bytes[atomic_fetch_add(&next, 1)];

	while (!atomic_load(&over)) {
		struct ibv_pd *pd = ibv_alloc_pd(verbs);
		struct ibv_cq *cq = ibv_create_cq(verbs, 16, NULL, NULL, 0);
		struct ibv_mr *mr;
		struct ibv_device_attr attr;

		CHECK(pd && cq);
		mr = ibv_reg_mr(pd, mine, SIZE, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && ibv_resize_cq(cq, 32) == 0 && ibv_query_device(verbs, &attr) == 0);
		CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	}
	return NULL;
}

static void beside(void *(*work)(void *), void *arg, struct ibv_context *verbs)
{
	pthread_t threads[THREADS], meddlers[2];

	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&meddlers[i], NULL, meddle, verbs) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, arg) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(meddlers[i], NULL);
}

static void server(struct rdma_cm_id *listener) { beside(serve, listener, listener->verbs); }

static void client(const char *at)
{
	int n;
	struct ibv_context **all = rdma_get_devices(&n);

	CHECK(n > 0);
	beside(ask, (void *)at, all[0]);
	rdma_free_devices(all);
}

static const struct test tests[] = {{"threads", server, client}, {0}};

int main(int argc, char **argv) { return run(tests, argc, argv); }
