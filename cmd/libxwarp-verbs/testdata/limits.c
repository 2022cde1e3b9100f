/* limits MEMORY REGIONS: a device reports the limits of its user, and the daemon enforces exactly these. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHECK(condition) do if (!(condition)) { fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, \
	strerror(errno)); exit(1); } while (0)

int main(int argc, char **argv)
{
	struct ibv_device_attr a;
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 3 && list && list[0]);
	struct ibv_context *c = ibv_open_device(list[0]);
	CHECK(c && ibv_query_device(c, &a) == 0);
	CHECK(a.max_mr_size == strtoull(argv[1], NULL, 10) && a.max_mr == atoi(argv[2]));
	struct ibv_pd *pd = ibv_alloc_pd(c);
	char *p = mmap(NULL, a.max_mr_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pd && p != MAP_FAILED);
	for (int again = 0; again < 2; again++) {
		CHECK(!ibv_reg_mr(pd, p, a.max_mr_size + 1, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM);
		struct ibv_mr *mr = ibv_reg_mr(pd, p, a.max_mr_size, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && !ibv_reg_mr(pd, p, 1, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	for (int i = 0; i < a.max_mr; i++)
		CHECK(ibv_reg_mr(pd, p, 1, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_reg_mr(pd, p, 1, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM);
	puts("all is well");
	return 0;
}
