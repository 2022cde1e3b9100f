/* lost ADDRESS: the daemon is killed during requests, which must all complete with an error. The test stops the
 * daemon before it sends SIGUSR1 to this program, and kills it after "posted" is printed. */
#include "ends.h"

#include <signal.h>

enum { RECVS = 8, SENDS = 10 };

static int watched(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	return 0;
}

static void flushed(struct ibv_cq *cq, uint64_t id, enum ibv_wc_opcode op, uint32_t qp)
{
	struct ibv_wc wc = complete(cq);

	if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != id)
		fprintf(stderr, "request %llu: status %d, want request %llu\n", (unsigned long long)wc.wr_id, wc.status, (unsigned long long)id);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == id && wc.opcode == op && wc.qp_num == qp);
}

static void send_one(struct end *e, uint64_t id, unsigned flags)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 1, .lkey = e->mr->lkey};

	post_send(e, &(struct ibv_send_wr){.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags});
}

static void server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	received(&e);
	while (complete(e.id->recv_cq).status == IBV_WC_SUCCESS)
		;
}

static void client(const char *at)
{
	char stack[64], *words = stack;
	struct end e = {0};
	struct ibv_wc wc;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	quiet_sends = true;
	dial(&e, at, RECVS - 1);
	uint32_t qp = e.id->qp->qp_num;
	struct ibv_mr *local = ibv_reg_mr(e.id->pd, words, sizeof stack, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)words, .length = 64, .lkey = local->lkey};
	struct ibv_recv_wr last = {.wr_id = RECVS, .sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(ibv_post_recv(e.id->qp, &last, &bad) == 0); /* into bounce memory */
	send_one(&e, 77, IBV_SEND_SIGNALED); /* this one completes and is not flushed */
	wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77);
	puts("ready");
	fflush(stdout);
	CHECK(sigwait(&set, &signal) == 0);
	CHECK(ibv_req_notify_cq(e.id->recv_cq, 0) == 0);
	for (uint64_t i = 1; i <= SENDS; i++)
		send_one(&e, i, i % 3 ? 0 : IBV_SEND_SIGNALED);
	puts("posted");
	fflush(stdout);
	watched(e.id->recv_cq_channel);
	for (uint64_t i = 1; i <= RECVS; i++)
		flushed(e.id->recv_cq, i, IBV_WC_RECV, qp);
	for (uint64_t i = 1; i <= SENDS; i++)
		flushed(e.id->send_cq, i, IBV_WC_SEND, qp);
	CHECK(ibv_query_qp(e.id->qp, &attr, 0, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
	CHECK(ibv_poll_cq(e.id->send_cq, 1, &wc) < 0 && ibv_poll_cq(e.id->recv_cq, 1, &wc) < 0);
	/* Requests posted to a queue pair in error are flushed too, more than the ring holds, and wake waiting
	 * threads. */
	for (uint64_t i = 100; i < 200; i++) {
		post_recv(&e, i % 32);
		watched(e.id->recv_cq_channel);
		flushed(e.id->recv_cq, i % 32, IBV_WC_RECV, qp);
		send_one(&e, i, 0);
		flushed(e.id->send_cq, i, IBV_WC_SEND, qp);
	}
	event(e.id->verbs, IBV_EVENT_DEVICE_FATAL, NULL);
	CHECK(quiet(e.id->verbs) && ibv_dereg_mr(local) == 0);
	hang_up(&e);
}

static const struct test tests[] = {{"lost", server, client}, {0}};

int main(int argc, char **argv) { return run(tests, argc, argv); }
