/* postpoll measures the cost of ibv_post_send and ibv_poll_cq alone: the queue pair and the completion queue are
 * memory of this process, and the work of the daemon is done in batches outside the measured time. */
#include "objects.h"

#include <sys/eventfd.h>
#include <time.h>

#define BATCH 64
#define ROUNDS 20000
#define SLOT 256

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *pages(size_t n)
{
	void *p = aligned_alloc(4096, n);

	if (!p)
		exit(1);
	memset(p, 0, n);
	return p;
}

/* complete imitates the daemon: it consumes the slots and writes a completion for each. */
static void complete(struct qp *q, struct cq *cq, uint32_t *done)
{
	for (int i = 0; i < BATCH; i++) {
		uint8_t *e = xw_slot(&cq->ring, *done + (uint32_t)i);
		memcpy(e + XW_SLOT_ID, xw_slot(&q->sq, *done + (uint32_t)i) + XW_SLOT_ID, 8);
		memcpy(e + XW_CQE_QP, &q->ib.qp_num, 4);
		e[XW_CQE_OP] = XW_OP_WRITE;
	}
	*done += BATCH;
	atomic_store(xw_word(q->sq.mem, XW_RING_HEAD), *done);
	atomic_store(xw_word(cq->ring.mem, XW_RING_TAIL), *done);
	atomic_store(xw_word(q->s->bell.mem, XW_DOORBELL_BELLS), 0);
}

int main(void)
{
	static struct session s;
	static struct context c;
	static struct qp q;
	static struct cq cq;
	static uint64_t post, poll;
	uint32_t done = 0;
	struct ibv_sge sge = {.addr = (uintptr_t)&s, .length = 64, .lkey = 1};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	pthread_mutex_init(&s.lock, NULL);
	s.bell.mem = pages(XW_DOORBELL_LEN);
	s.ring = eventfd(0, EFD_NONBLOCK);
	c.s = &s;
	q.s = &s;
	q.ib.context = cq.ib.context = &c.v.context;
	c.v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	q.ib.qp_num = 7;
	q.ib.state = IBV_QPS_RTS;
	q.max_sge = 4;
	pthread_mutex_init(&q.send, NULL);
	pthread_mutex_init(&cq.poll, NULL);
	q.sq = (struct ring){.mem = pages(XW_RING_SLOTS + 2 * BATCH * SLOT), .slots = 2 * BATCH, .size = SLOT};
	q.ib.handle = q.ib.qp_num;
	q.ib.send_cq = &cq.ib;
	q.sq.record = xw_record_new(q.sq.slots);
	xw_cq_add(&cq, &q);
	cq.ring = (struct ring){.mem = pages(XW_RING_SLOTS + 2 * BATCH * SLOT), .slots = 2 * BATCH, .size = XW_CQE_SIZE};
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t t = now();
		for (int i = 0; i < BATCH; i++) {
			wr.wr_id = (uint64_t)i;
			if (xw_post_send(&q.ib, &wr, &bad) != 0)
				return 1;
		}
		post += now() - t;
		complete(&q, &cq, &done);
		t = now();
		for (int i = 0; i < BATCH; i++)
			if (xw_poll_cq(&cq.ib, 1, &wc) != 1 || wc.wr_id != (uint64_t)i || wc.status != IBV_WC_SUCCESS)
				return 2;
		poll += now() - t;
	}
	printf("post %.1f ns, poll %.1f ns\n", (double)post / ROUNDS / BATCH, (double)poll / ROUNDS / BATCH);
	return 0;
}
