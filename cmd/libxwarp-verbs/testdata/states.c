/* Two queue pairs of one program, connected to each other by ibv_modify_qp: attribute masks as in the kernel's
 * table, flushes in ERR, and reuse after RESET. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) do if (!(condition)) { fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, \
	strerror(errno)); exit(1); } while (0)

enum {
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	      IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct ibv_context *c;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buffer[64];

/* move_from is move with a GID index of this end. */
static int move_from(uint8_t gid, struct ibv_qp *q, enum ibv_qp_state to, int mask, uint32_t peer)
{
	struct ibv_qp_attr a = {.qp_state = to, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_rd_atomic = 1,
				.max_dest_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid}}};

	CHECK(ibv_query_gid(c, 1, 0, &a.ah_attr.grh.dgid) == 0);
	return ibv_modify_qp(q, &a, mask);
}

static int move(struct ibv_qp *q, enum ibv_qp_state to, int mask, uint32_t peer)
{
	return move_from(0, q, to, mask, peer);
}

/* ask_for_absent_gids names GIDs that the device does not have. q is in INIT, and stays there. */
static void ask_for_absent_gids(struct ibv_qp *q)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 203}};
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	errno = 0;
	CHECK(ibv_query_gid(c, 1, 200, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid_ex(c, 1, 201, &entry, 0) == EINVAL && ibv_query_gid_ex(c, 257, 0, &entry, 0) == EINVAL);
	CHECK(move_from(202, q, IBV_QPS_RTR, RTR, q->qp_num) == EINVAL && q->state == IBV_QPS_INIT);
	errno = 0;
	CHECK(!ibv_create_ah(q->pd, &attr) && errno == EINVAL);
	attr.grh.sgid_index = 0;
	struct ibv_ah *ah = ibv_create_ah(q->pd, &attr);
	CHECK(ah && ibv_destroy_ah(ah) == 0);
}

static struct ibv_wc complete(void)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

static void post_recv(struct ibv_qp *q, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)buffer, sizeof buffer, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

	CHECK(ibv_post_recv(q, &wr, &bad) == 0);
}

static void send_from(struct ibv_qp *q)
{
	struct ibv_send_wr *bad, wr = {.wr_id = 7, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};

	CHECK(ibv_post_send(q, &wr, &bad) == 0);
}

static void connect_both(struct ibv_qp *a, struct ibv_qp *b)
{
	CHECK(move(a, IBV_QPS_RTR, RTR, 0) == EINVAL); /* not allowed in RESET */
	CHECK(move(a, IBV_QPS_INIT, INIT & ~IBV_QP_PORT, 0) == EINVAL);
	CHECK(move(a, IBV_QPS_INIT, INIT | IBV_QP_QKEY, 0) == EINVAL);
	CHECK(move(a, IBV_QPS_INIT, INIT, 0) == 0 && move(b, IBV_QPS_INIT, INIT, 0) == 0);
	CHECK(move(a, IBV_QPS_RTS, RTS, 0) == EINVAL);
	CHECK(move(a, IBV_QPS_RTR, RTR & ~IBV_QP_DEST_QPN, 0) == EINVAL);
	CHECK(move(a, IBV_QPS_RTR, RTR | IBV_QP_CUR_STATE, 0) == EINVAL);
	ask_for_absent_gids(a);
	CHECK(move(a, IBV_QPS_RTR, RTR, b->qp_num) == 0 && move(b, IBV_QPS_RTR, RTR, a->qp_num) == 0);
	CHECK(move(a, IBV_QPS_RTR, RTR, b->qp_num) == EINVAL); /* RTR to RTR is not allowed */
	CHECK(move(a, IBV_QPS_RTS, RTS & ~IBV_QP_TIMEOUT, 0) == EINVAL);
	CHECK(move(a, IBV_QPS_RTS, RTS, 0) == 0 && move(b, IBV_QPS_RTS, RTS, 0) == 0);
	CHECK(a->state == IBV_QPS_RTS);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0] && (c = ibv_open_device(list[0])));
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && (cq = ibv_create_cq(c, 64, NULL, NULL, 0)) && (mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)));
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *a = ibv_create_qp(pd, &init), *b = ibv_create_qp(pd, &init);
	CHECK(a && b && a->qp_num != b->qp_num);
	uint32_t numbers[] = {a->qp_num, b->qp_num};
	for (int life = 0; life < 3; life++) {
		connect_both(a, b);
		send_from(a); /* waits for the receive */
		post_recv(b, 1);
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = complete();
			CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == (wc.wr_id == 1 ? b : a)->qp_num);
		}
		post_recv(a, 2);
		post_recv(b, 3);
		CHECK(move(a, IBV_QPS_ERR, IBV_QP_STATE, 0) == 0);
		struct ibv_wc wc = complete();
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 2 && wc.qp_num == a->qp_num);
		send_from(a);
		wc = complete();
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 7);
		CHECK(move(a, IBV_QPS_RESET, IBV_QP_STATE, 0) == 0 && move(b, IBV_QPS_RESET, IBV_QP_STATE, 0) == 0);
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0); /* b's receive has no completion */
		CHECK(a->qp_num == numbers[0] && b->qp_num == numbers[1] && a->state == IBV_QPS_RESET);
	}
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	puts("all is well");
	return 0;
}
