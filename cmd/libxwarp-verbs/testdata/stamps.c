/* stamps: completions have times of the clock that ibv_query_rt_values_ex reads, and of CLOCK_REALTIME. */
#include "ends.h"

#include <time.h>

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec t;

	CHECK(clock_gettime(clock, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t raw(struct ibv_context *c)
{
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	CHECK(ibv_query_rt_values_ex(c, &v) == 0 && v.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	return (uint64_t)v.raw_clock.tv_sec * 1000000000 + (uint64_t)v.raw_clock.tv_nsec;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	struct ibv_device_attr_ex x;
	struct ibv_cq_init_attr_ex a = {.cqe = 4,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	CHECK(pd && ibv_query_device_ex(c, NULL, &x) == 0 && x.completion_timestamp_mask && x.hca_core_clock == 1000000);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(c, &a);
	CHECK(cq);
	struct ibv_qp_init_attr q = queues(NULL);
	q.send_cq = q.recv_cq = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *qp = ibv_create_qp(pd, &q);
	CHECK(qp && ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1},
				  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	struct ibv_recv_wr wr = {.wr_id = 7}, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	uint64_t before = raw(c), wall = nanoseconds(CLOCK_REALTIME);
	CHECK(before >= nanoseconds(CLOCK_MONOTONIC_RAW) - 60000000000);
	CHECK(ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE) == 0);
	while (ibv_start_poll(cq, &(struct ibv_poll_cq_attr){0}) != 0)
		;
	CHECK(cq->wr_id == 7 && cq->status == IBV_WC_WR_FLUSH_ERR);
	uint64_t stamp = ibv_wc_read_completion_ts(cq);
	CHECK(stamp >= before && stamp <= raw(c));
	CHECK(ibv_wc_read_completion_wallclock_ns(cq) >= wall && ibv_wc_read_completion_wallclock_ns(cq) <= nanoseconds(CLOCK_REALTIME));
	ibv_end_poll(cq);
	puts("all is well");
	return 0;
}
