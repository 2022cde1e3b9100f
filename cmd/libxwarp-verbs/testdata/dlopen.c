/* A program that loads the libraries at run time, as NCCL does: PROGRAM LIBRARY PLUGIN, with LIBRARY in the program's
 * RUNPATH. PLUGIN is this file built with -DPLUGIN, which Valkey would open with RTLD_DEEPBIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PLUGIN
struct ibv_device **plugin_devices(int *n) { return ibv_get_device_list(n); }
#else
#define CHECK(condition) do if (!(condition)) { const char *why = dlerror(); \
	fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, why ? why : "?"); exit(1); } while (0)

typedef struct ibv_device **lister(int *n);
typedef const char *namer(enum ibv_wc_status status);

static void lists(void *found)
{
	int n = 0;

	CHECK(found && ((lister *)found)(&n) && n == 1);
}

int main(int argc, char **argv)
{
	static const char *const files[] = {
		"libibverbs.so.1", "libibverbs.so", "librdmacm.so.1",
#ifdef __x86_64__
		"/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
#endif
	};

	CHECK(argc == 3 && !dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD));
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		void *h = dlopen(files[i], RTLD_NOW | RTLD_LOCAL), *again;
		CHECK(h);
		lists(dlsym(h, "ibv_get_device_list"));
		lists(dlvsym(h, "ibv_get_device_list", "IBVERBS_1.1"));
		CHECK(dlvsym(h, "ibv_reg_mr_iova2", "IBVERBS_1.8") && dlvsym(h, "rdma_create_id", "RDMACM_1.0"));
		CHECK(!dlvsym(h, "ibv_reg_mr_iova2", "IBVERBS_7.7"));
		CHECK(dlsym(h, "rsocket")); /* other symbols are those of rdma-core */
		namer *name = (namer *)dlsym(h, "ibv_wc_status_str");
		CHECK(name && *name(IBV_WC_WR_FLUSH_ERR));
		CHECK((again = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD)) && dlclose(again) == 0 && dlclose(h) == 0);
	}
	CHECK(!dlopen("libibverbs.so.77", RTLD_NOW | RTLD_NOLOAD));
	CHECK(dlopen(argv[1], RTLD_NOW)); /* the caller's RUNPATH is searched */
	void *plugin = dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
	CHECK(plugin);
	lists(dlsym(plugin, "plugin_devices"));
	puts("all is well");
	return 0;
}
#endif
