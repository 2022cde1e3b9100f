/* Each bit of each argument with flags: those that have an effect, or that are hints, are accepted; all others are refused
 * with EINVAL or EOPNOTSUPP. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) do if (!(condition)) { fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, \
	strerror(errno)); exit(1); } while (0)

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_srq *srq;
static bool roce;
static char memory[4096] __attribute__((aligned(4096)));

static struct ibv_qp *create(uint64_t comp_mask, uint32_t create_flags, uint64_t ops)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = cq, .recv_cq = cq, .cap = {16, 4, 1, 1, 16}, .qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (uint32_t)comp_mask, .create_flags = create_flags, .send_ops_flags = ops};

	return ibv_create_qp_ex(c, &a);
}

static int made(struct ibv_qp *q)
{
	return q ? ibv_destroy_qp(q) : errno;
}

/* in_error returns a queue pair in ERR, to which everything may be posted. */
static struct ibv_qp *in_error(void)
{
	struct ibv_qp *q = create(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_BIND_MW);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(q && ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	a.qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE) == 0);
	return q;
}

static int region(uint64_t flags)
{
	struct ibv_mr *m = ibv_reg_mr_iova2(pd, memory, sizeof memory, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE | (unsigned)flags);

	return m ? ibv_dereg_mr(m) : errno;
}

static int plain_region(uint64_t flags)
{
	struct ibv_mr *m = (ibv_reg_mr)(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | (int)flags);

	return m ? ibv_dereg_mr(m) : errno;
}

static int again(uint64_t flags)
{
	return ibv_rereg_mr(mr, (int)flags, pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE) == 0 ? 0 : EINVAL;
}

static int again_access(uint64_t flags)
{
	return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | (int)flags) == 0 ? 0 : EINVAL;
}

static int modify(uint64_t flags)
{
	struct ibv_qp *q = create(0, 0, 0);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .cur_qp_state = IBV_QPS_RESET, .port_num = 1};

	CHECK(q);
	int error = ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | (int)flags);
	CHECK(ibv_destroy_qp(q) == 0);
	return error;
}

static int access_of(uint64_t flags)
{
	struct ibv_qp *q = create(0, 0, 0);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)flags};

	CHECK(q);
	int error = ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	CHECK(ibv_destroy_qp(q) == 0);
	return error;
}

static int posted(struct ibv_send_wr wr)
{
	struct ibv_qp *q = in_error();
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(q, &wr, &bad);

	CHECK(!error || bad == &wr);
	CHECK(ibv_destroy_qp(q) == 0);
	return error;
}

static int posts(uint64_t flags) { return posted((struct ibv_send_wr){.opcode = IBV_WR_SEND, .send_flags = (unsigned)flags}); }

static int builds(uint64_t flags)
{
	struct ibv_qp *q = in_error();
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(q);

	ibv_wr_start(ex);
	ex->wr_flags = (unsigned)flags;
	ibv_wr_send(ex);
	int error = ibv_wr_complete(ex);
	CHECK(ibv_destroy_qp(q) == 0);
	return error;
}

static struct ibv_mw_bind_info window(uint64_t flags)
{
	return (struct ibv_mw_bind_info){.mr = mr, .addr = (uintptr_t)memory, .length = 1, .mw_access_flags = (unsigned)flags};
}

static int binds(uint64_t flags)
{
	return posted((struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, 1, window(flags)}});
}

static int builds_bind(uint64_t flags)
{
	struct ibv_qp *q = in_error();
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(q);
	struct ibv_mw_bind_info info = window(flags);

	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_bind_mw(ex, mw, 1, &info);
	int error = ibv_wr_complete(ex);
	CHECK(ibv_destroy_qp(q) == 0);
	return error;
}

static int queue(uint64_t wc, uint32_t comp_mask, uint32_t flags)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 4, .wc_flags = wc, .comp_mask = comp_mask, .flags = flags};
	struct ibv_cq_ex *q = ibv_create_cq_ex(c, &a);

	return q ? ibv_destroy_cq(ibv_cq_ex_to_cq(q)) : errno;
}

static int queue_wc(uint64_t flags) { return queue(flags, 0, 0); }
static int queue_mask(uint64_t flags) { return queue(0, (uint32_t)flags, 0); }
static int queue_flags(uint64_t flags) { return queue(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, (uint32_t)flags); }
static int qp_mask(uint64_t flags) { return made(create(flags, 0, 0)); }
static int qp_flags(uint64_t flags) { return made(create(IBV_QP_INIT_ATTR_CREATE_FLAGS, (uint32_t)flags, 0)); }
static int qp_ops(uint64_t flags) { return made(create(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0, flags)); }
static int shared(uint64_t flags) { return ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 4, .srq_limit = 0}, (int)flags); }

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0] && (c = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(c)) && (cq = ibv_create_cq(c, 64, NULL, NULL, 0)));
	roce = list[0]->transport_type == IBV_TRANSPORT_IB;
	struct ibv_srq_init_attr of = {.attr = {.max_wr = 4, .max_sge = 1}};
	CHECK((srq = ibv_create_srq(pd, &of)) && (mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
	const uint64_t optional = 0x3ff00000;
	const struct {
		const char *name;
		int (*call)(uint64_t flags);
		int bits;
		uint64_t good;
	} arguments[] = {
		{"access of ibv_reg_mr_iova2", region, 32, optional | 0xbf},
		{"access of ibv_reg_mr", plain_region, 32, optional | 0xbf},
		{"flags of ibv_rereg_mr", again, 32, 7},
		{"access of ibv_rereg_mr", again_access, 32, optional | 0xbf},
		{"mask of ibv_modify_qp", modify, 32, roce ? IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS : 0x3bf7f},
		{"qp_access_flags", access_of, 32, optional | 0x1f},
		{"comp_mask of ibv_create_qp_ex", qp_mask, 32, 0x45},
		{"create_flags", qp_flags, 32, 0},
		{"send_ops_flags", qp_ops, 64, roce ? 0x3ff : 0x3f7},
		{"send_flags", posts, 32, 0xf},
		{"wr_flags", builds, 32, 0xf},
		{"mw_access_flags", binds, 32, 0x2f},
		{"mw_access_flags of ibv_wr_bind_mw", builds_bind, 32, 0x2f},
		{"wc_flags", queue_wc, 64, 0x8ff},
		{"comp_mask of ibv_create_cq_ex", queue_mask, 32, 1},
		{"flags of ibv_create_cq_ex", queue_flags, 32, 1},
		{"mask of ibv_modify_srq", shared, 32, 3},
	};
	int wrong = 0;
	for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++)
		for (int bit = 0; bit < arguments[i].bits; bit++) {
			int error = arguments[i].call(1ULL << bit);
			bool good = arguments[i].good >> bit & 1;
			if (good ? error == 0 : error == EINVAL || error == EOPNOTSUPP)
				continue;
			fprintf(stderr, "%s, bit %d: %s\n", arguments[i].name, bit, strerror(error));
			wrong++;
		}
	if (wrong)
		return 1;
	puts("all is well");
	return 0;
}
