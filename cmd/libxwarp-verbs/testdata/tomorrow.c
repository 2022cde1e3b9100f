/* This library imitates libibverbs and librdmacm of a future version. Its new functions call operations in the
 * private part of a context. NAMES is X(name) for each function of today; no call may reach those. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define X(name)                                                                    \
	void today_##name(void) __asm__(#name);                                    \
	void today_##name(void)                                                    \
	{                                                                          \
		fprintf(stderr, #name " is that of rdma-core\n");                  \
		_exit(1);                                                          \
	}
NAMES

typedef int returns_int(void *);
typedef void *returns_pointer(void *);

static void *operation(struct ibv_context *c, int i) { return ((void **)(void *)verbs_get_ctx(c)->priv)[i]; }

int ibv_query_tomorrow(struct ibv_context *c) { return ((returns_int *)operation(c, 3))(c); }

int ibv_modify_tomorrow(struct ibv_context *c)
{
	int error = ((returns_int *)operation(c, 300))(c);

	return error ? error : puts("modified");
}

void *ibv_alloc_tomorrow(struct ibv_context *c) { return ((returns_pointer *)operation(c, 20))(c); }
int ibv_dealloc_tomorrow(void **object) { return ((returns_int *)operation(*object, 100))(object); }

struct ibv_mr *ibv_reg_tomorrow(struct ibv_pd *pd)
{
	struct ibv_mr *mr = ((returns_pointer *)operation(pd->context, 150))(pd);

	if (mr) {
		mr->context = pd->context;
		mr->pd = pd;
	}
	return mr;
}

int ibv_write_tomorrow(struct ibv_context *c) { return write(c->cmd_fd, "a command of 24 bytes...", 24) == 24 ? 0 : -1; }

/* librdmacm has a lock and other fields behind an identifier. */
int rdma_write_tomorrow(struct rdma_cm_id *id)
{
	char *private = (char *)id;

	for (size_t at = sizeof *id + 64; at < sizeof *id + 512; at += sizeof(pthread_mutex_t))
		pthread_mutex_lock((void *)(private + at));
	return write(id->channel->fd, "a command of 24 bytes...", 24) == 24 ? 0 : -1;
}
