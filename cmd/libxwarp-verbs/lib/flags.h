/* The flags of all arguments of verbs, in one table. Flags that only select what a call returns (ibv_query_qp) are
 * not checked, as in the drivers of the kernel. Newer flags are written as bits, because the headers of the build
 * host may not have their names. */
#pragma once
#include "base.h"

enum xw_flags {
	XW_FLAGS_REGION,      /* access of ibv_reg_mr, ibv_rereg_mr */
	XW_FLAGS_REREG,	      /* ibv_rereg_mr */
	XW_FLAGS_WINDOW,      /* mw_access_flags */
	XW_FLAGS_QP_ACCESS,   /* qp_access_flags */
	XW_FLAGS_QP_IWARP,    /* mask of ibv_modify_qp; roce.c has a table of its transitions */
	XW_FLAGS_QP_INIT,     /* comp_mask of ibv_create_qp_ex */
	XW_FLAGS_QP_CREATE,   /* create_flags */
	XW_FLAGS_QP_OPS,      /* send_ops_flags, style iwarp */
	XW_FLAGS_QP_OPS_ROCE, /* style roce */
	XW_FLAGS_SEND,	      /* send_flags, wr_flags */
	XW_FLAGS_CQ_INIT,     /* comp_mask of ibv_create_cq_ex */
	XW_FLAGS_CQ_CREATE,   /* flags of ibv_create_cq_ex */
	XW_FLAGS_CQ_WC,	      /* wc_flags */
	XW_FLAGS_SRQ,	      /* mask of ibv_modify_srq */
};

#define XW_BITS(first, last) ((2ULL << (last)) - (1ULL << (first)))

#define XW_REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define XW_STAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define XW_SEND_OPS                                                                                                \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |                    \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |      \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW)

static const struct xw_flag_set {
	uint64_t works;	  /* has its effect, or is a hint */
	uint64_t refused; /* has a meaning that this library does not support */
	const char *what; /* name of the refused ones, for the message */
} xw_flag_sets[] = {
	/* Optional access bits may be ignored (ibv_reg_mr). */
	[XW_FLAGS_REGION] = {IBV_ACCESS_LOCAL_WRITE | XW_REMOTE_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
				     IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE,
			     IBV_ACCESS_ON_DEMAND | XW_BITS(8, 9),
			     "on-demand paging and flushes of regions (IBV_ACCESS_ON_DEMAND, IBV_ACCESS_FLUSH_*)"},
	[XW_FLAGS_REREG] = {IBV_REREG_MR_FLAGS_SUPPORTED, 0, NULL},
	[XW_FLAGS_WINDOW] = {IBV_ACCESS_LOCAL_WRITE | XW_REMOTE_ACCESS | IBV_ACCESS_ZERO_BASED, 0, NULL},
	[XW_FLAGS_QP_ACCESS] = {IBV_ACCESS_LOCAL_WRITE | XW_REMOTE_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE,
				XW_BITS(8, 9), "flushes (IBV_ACCESS_FLUSH_*)"},
	[XW_FLAGS_QP_IWARP] = {IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
				       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
				       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC,
			       IBV_QP_CAP | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT | IBV_QP_AV | IBV_QP_DEST_QPN,
			       "changing depth, path or rate of a queue pair, and connecting by ibv_modify_qp: iWARP connects by "
			       "rdma_cm (perftest: -R; or xwarp run --style roce)"},
	[XW_FLAGS_QP_INIT] = {IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS,
			      IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE |
				      IBV_QP_INIT_ATTR_RX_HASH,
			      "this extension of ibv_create_qp_ex"},
	[XW_FLAGS_QP_CREATE] = {0, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING |
					   IBV_QP_CREATE_SOURCE_QPN | IBV_QP_CREATE_PCI_WRITE_END_PADDING,
				"create_flags of ibv_create_qp_ex"},
	[XW_FLAGS_QP_OPS] = {XW_SEND_OPS, IBV_QP_EX_WITH_SEND_WITH_IMM | XW_BITS(10, 12), "one of the send_ops_flags of ibv_create_qp_ex"},
	[XW_FLAGS_QP_OPS_ROCE] = {XW_SEND_OPS | IBV_QP_EX_WITH_SEND_WITH_IMM, XW_BITS(10, 12), "one of the send_ops_flags of ibv_create_qp_ex"},
	[XW_FLAGS_SEND] = {IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE, IBV_SEND_IP_CSUM,
			   "checksums of IP (IBV_SEND_IP_CSUM)"},
	[XW_FLAGS_CQ_INIT] = {IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, "completion queues in a parent domain"},
	[XW_FLAGS_CQ_CREATE] = {IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
				"completion queues that overrun unnoticed (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)"},
	[XW_FLAGS_CQ_WC] = {IBV_WC_STANDARD_FLAGS | XW_STAMPS,
			    IBV_CREATE_CQ_SUP_WC_FLAGS & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | XW_STAMPS),
			    "completion queues with VLANs, flow tags or tag matching"},
	[XW_FLAGS_SRQ] = {IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 0, NULL},
};

/* xw_check_flags returns 0, EINVAL for unknown flags, or EOPNOTSUPP for flags that do not work here, with a line on
 * stderr. */
static inline int xw_check_flags(enum xw_flags argument, uint64_t flags)
{
	const struct xw_flag_set *s = &xw_flag_sets[argument];

	if (!(flags & ~s->works))
		return 0;
	return flags & ~(s->works | s->refused) ? EINVAL : xw_refused(s->what);
}
