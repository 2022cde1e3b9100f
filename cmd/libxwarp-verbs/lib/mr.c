/* Protection domains and memory regions. */
#include "objects.h"

#include <sys/mman.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	REPLY(c);
	int error = pd ? xw_call(xw_session(context), &c, -1, "alloc_pd", "{}") : ENOMEM;

	if (!error && !json_u32(c.result, "handle", &pd->handle))
		error = EPROTO;
	if (error) {
		free(pd);
		return xw_null(error);
	}
	pd->context = context;
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int error = xw_destroy(xw_session(pd->context), "free_pd", pd->handle);

	if (!error)
		free(pd);
	return error;
}

unsigned xw_rights(int access)
{
	return (access & IBV_ACCESS_LOCAL_WRITE ? XW_ACCESS_LOCAL_WRITE : 0) |
	       (access & IBV_ACCESS_REMOTE_READ ? XW_ACCESS_REMOTE_READ : 0) |
	       (access & IBV_ACCESS_REMOTE_WRITE ? XW_ACCESS_REMOTE_WRITE : 0) |
	       (access & IBV_ACCESS_REMOTE_ATOMIC ? XW_ACCESS_REMOTE_ATOMIC : 0) |
	       (access & IBV_ACCESS_MW_BIND ? XW_ACCESS_BIND_MW : 0);
}

static int check_access(int access)
{
	const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	int error = xw_check_flags(XW_FLAGS_REGION, (unsigned)access);

	return error ? error : access & remote && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/* back makes a region accessible to the daemon. Memory that cannot be moved and is not in a file that the daemon can
 * map gets a copy. It is refused if access allows peers to access it. */
static int back(struct backing *b, void *addr, size_t length, int access)
{
	const int remote = XW_REMOTE_ACCESS | IBV_ACCESS_MW_BIND;

	*b = (struct backing){.file = -1};
	bool write = xw_rights(access) & XW_WRITTEN;
	int error = xw_share(addr, length, write, &b->share);
	if (error != EOPNOTSUPP)
		return error;
	error = xw_file_of(addr, length, write, &b->file, &b->offset);
	if (error != EOPNOTSUPP && error != EBADF)
		return error;
	if (access & remote)
		return xw_refused(error == EBADF ? "remote access to shared memory of a file that is not on tmpfs or hugetlbfs, or is "
						   "unlinked and not open (keep the descriptor of memfd_create or shm_open open for "
						   "reading and writing until ibv_reg_mr)"
						 : "remote access to memory on the stack, memory of more than one file or kind, "
						   "or memory where a registered buffer was moved away");
	if ((error = xw_bounce_make(addr, length, write, &b->bounce)))
		return error;
	if ((error = xw_share(xw_bounce_copy(b->bounce), length, true, &b->share)))
		xw_bounce_free(b->bounce);
	return error;
}

static void unback(struct backing *b)
{
	if (b->bounce)
		xw_cqs_land();
	if (b->share)
		xw_unshare(b->share);
	xw_bounce_free(b->bounce);
}

/* fits warns once that a region exceeds the user's limit, before its pages are moved and untouched ones are
 * allocated. */
static int fits(struct ibv_pd *pd, size_t length)
{
	uint64_t most = xw_session(pd->context)->limits.memory;

	if (length <= most)
		return 0;
	if (xw_first_time(__func__))
		xw_warn("memory region of %zu bytes refused: the limit of this user is %llu (raise limits.memory of xwarpd, or add a "
			"[[user]] table for the user, reload xwarpd and restart the program)", length, (unsigned long long)most);
	return ENOMEM;
}

/* enter asks the daemon to map the backing of addr, and fills the fields that programs see. */
static int enter(struct mr *m, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	uint32_t handle, stag;
	REPLY(c);
	struct backing *b = &m->backing;
	uint64_t at = b->file >= 0 ? b->offset : (uintptr_t)(b->bounce ? xw_bounce_copy(b->bounce) : addr);
	int error = xw_call(xw_session(pd->context), &c, b->file >= 0 ? b->file : xw_arena(), "reg_mr",
			    "{\"pd\":%u,\"offset\":%llu,\"length\":%zu,\"access\":%u,\"base\":%llu}", pd->handle,
			    (unsigned long long)at, length, xw_rights(access), (unsigned long long)iova);

	if (error)
		xw_call_explain(&c);
	if (b->file >= 0)
		close(b->file);
	b->file = -1;
	if (error)
		return error;
	if (!json_u32(c.result, "handle", &handle) || !json_u32(c.result, "stag", &stag))
		return EPROTO;
	m->ib = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length,
				.handle = handle, .lkey = stag, .rkey = stag};
	m->access = access;
	if (b->bounce)
		xw_bounce_use(b->bounce, stag, iova);
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct mr *m = calloc(1, sizeof *m);
	int error = m ? check_access(access) : ENOMEM;

	if (!error)
		error = fits(pd, length);
	if (!error)
		error = back(&m->backing, addr, length, access);
	if (!error) {
		error = enter(m, pd, addr, length, access & IBV_ACCESS_ZERO_BASED ? 0 : iova, access);
		if (error)
			unback(&m->backing);
	}
	if (error) {
		free(m);
		return xw_null(error);
	}
	return &m->ib;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return reg_mr(pd, addr, length, iova, (int)access);
}

/* buf is a buffer of ibv_alloc_buf. */
struct buf {
	struct ibv_pd *pd;
	char *addr;
	size_t size;
};

NEWER(void *, ibv_alloc_buf, (struct ibv_pd *pd, size_t size, struct buf **out))
{
	struct buf *b = size ? calloc(1, sizeof *b) : xw_null(EINVAL);

	if (!b)
		return NULL;
	b->addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->addr == MAP_FAILED) {
		free(b);
		return NULL;
	}
	b->pd = pd;
	b->size = size;
	*out = b;
	return b->addr;
}

NEWER(void, ibv_free_buf, (struct buf *b))
{
	munmap(b->addr, b->size);
	free(b);
}

NEWER(struct ibv_mr *, ibv_reg_buf_mr, (struct ibv_pd *pd, struct buf *b, void *addr, size_t length, int access))
{
	uintptr_t at = (uintptr_t)addr - (uintptr_t)b->addr;

	if (pd != b->pd || at > b->size || length > b->size - at)
		return xw_null(EINVAL);
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

enum { MASK_IOVA = 1, MASK_ADDR = 2, MASK_BUF = 32 };

struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct buf *buf;
};

NEWER(struct ibv_mr *, ibv_reg_mr_ex, (struct ibv_pd *pd, struct mr_init_attr *a))
{
	if (a->comp_mask & ~(uint64_t)(MASK_IOVA | MASK_ADDR | MASK_BUF)) /* dma-buf, DMA handles */
		return xw_null(EOPNOTSUPP);
	if (!(a->comp_mask & MASK_ADDR))
		return xw_null(EINVAL);
	if (a->comp_mask & MASK_BUF && !(a->comp_mask & MASK_IOVA))
		return newer_ibv_reg_buf_mr(pd, a->buf, a->addr, a->length, a->access);
	return reg_mr(pd, a->addr, a->length, a->comp_mask & MASK_IOVA ? a->iova : (uintptr_t)a->addr, a->access);
}

static int leave(struct mr *m) { return xw_destroy(xw_session(m->ib.context), "dereg_mr", m->ib.handle); }

EXPORT int ibv_dereg_mr(struct ibv_mr *ib)
{
	struct mr *m = container_of(ib, struct mr, ib);
	int error = leave(m);

	if (error)
		return error;
	unback(&m->backing);
	free(m);
	return 0;
}

/* A reregistered region gets another key, since a peer may still use the old one. */
EXPORT int ibv_rereg_mr(struct ibv_mr *ib, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct mr *m = container_of(ib, struct mr, ib), old = *m;

	if (!flags || xw_check_flags(XW_FLAGS_REREG, (unsigned)flags))
		return IBV_REREG_MR_ERR_INPUT;
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = old.ib.pd;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = old.access;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = old.ib.addr;
		length = old.ib.length;
	}
	if (check_access(access) || fits(pd, length) || back(&m->backing, addr, length, access)) {
		m->backing = old.backing;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (enter(m, pd, addr, length, (uintptr_t)addr, access)) {
		unback(&m->backing);
		*m = old;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (leave(&old)) {
		leave(m);
		unback(&m->backing);
		*m = old;
		return IBV_REREG_MR_ERR_CMD;
	}
	unback(&old.backing);
	return 0;
}
