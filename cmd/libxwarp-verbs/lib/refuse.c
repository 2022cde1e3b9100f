/* Unsupported functions: they fail with EOPNOTSUPP and, except those at the end, print one line to stderr. The verbs
 * headers are not included, because only the names matter to the linker, and arguments are ignored. */
#include <errno.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
int xw_refused(const char *what);

/* Each macro defines a function that fails: NO_POINTER with NULL, NO_ERRNO with errno as the result, NO_INT with -1. */
#define NO_POINTER(name, what) EXPORT void *name(void); void *name(void) { xw_refused(what); return NULL; }
#define NO_ERRNO(name, what) EXPORT int name(void); int name(void) { return xw_refused(what); }
#define NO_INT(name, what) EXPORT int name(void); int name(void) { xw_refused(what); return -1; }

extern const char xw_datagrams[];
const char xw_datagrams[] = "datagrams and address handles (UD): iWARP has only connections";
static const char addrinfo[] = "rdma_resolve_addrinfo (use rdma_getaddrinfo)";
static const char import[] = "sharing objects between processes (ibv_import_*)";

NO_POINTER(ibv_create_ah_from_wc, xw_datagrams)
NO_ERRNO(ibv_init_ah_from_wc, xw_datagrams)
NO_ERRNO(ibv_attach_mcast, xw_datagrams)
NO_ERRNO(ibv_detach_mcast, xw_datagrams)
NO_INT(rdma_join_multicast, xw_datagrams)
NO_INT(rdma_join_multicast_ex, xw_datagrams)
NO_INT(rdma_leave_multicast, xw_datagrams)
NO_INT(ibv_resolve_eth_l2_from_gid, xw_datagrams)
NO_POINTER(ibv_import_device, import)
NO_POINTER(ibv_import_pd, import)
NO_POINTER(ibv_import_mr, import)
NO_POINTER(ibv_import_dm, import)
NO_INT(ibv_unimport_pd, import)
NO_INT(ibv_unimport_mr, import)
NO_INT(ibv_unimport_dm, import)
NO_INT(rdma_resolve_addrinfo, addrinfo)
NO_INT(rdma_query_addrinfo, addrinfo)
NO_INT(rdma_write_cm_event, "events of the program (rdma_write_cm_event)")

/* Programs (UCX, NCCL) try these on every device and continue without them: no line on stderr. */
#define NONE(type, name, result) EXPORT type name(void); type name(void) { errno = EOPNOTSUPP; return result; }

NONE(void *, ibv_reg_dmabuf_mr, NULL)
NONE(int, ibv_set_ece, EOPNOTSUPP)
NONE(int, ibv_query_ece, EOPNOTSUPP)
NONE(int, rdma_set_local_ece, -1)
NONE(int, rdma_get_remote_ece, -1)
NONE(void *, ibv_alloc_dmah, NULL)
NONE(int, ibv_dealloc_dmah, EOPNOTSUPP)
NONE(int, ibv_dm_export_dmabuf_fd, -1)
NONE(int, ibv_export_buf_dmabuf_fd, -1)
NONE(int, _ibv_query_comp_cntr_caps, EOPNOTSUPP)
NONE(void *, ibv_create_comp_cntr, NULL)
NONE(int, ibv_destroy_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_set_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_set_err_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_inc_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_inc_err_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_read_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_read_err_comp_cntr, EOPNOTSUPP)
NONE(int, ibv_qp_attach_comp_cntr, EOPNOTSUPP)
