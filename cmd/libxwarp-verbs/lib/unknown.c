/* Functions of rdma-core that are newer than this library. It does not replace them, so they receive its contexts and
 * call an operation in the private part of libibverbs, whose layout differs between versions. Here it consists of
 * pointers to one function.
 *
 * That function does not know which result its caller expects. EOPNOTSUPP is right for an int, but not for a pointer
 * to a new object. If libibverbs has more to do afterwards, its name says what it returns. Otherwise it has jumped to
 * the operation, and the result is both: the lower half of a pointer is EOPNOTSUPP, and it points to an object whose
 * own operations end here too. */
#include "objects.h"

#include <sys/mman.h>

/* OPERATIONS is more than the private part has; version 65 has 190. */
enum { OPERATIONS = 4096, OBJECT = 4096 };

static uintptr_t operations[OPERATIONS];
static struct verbs_context nowhere = {
	.priv = (void *)operations, .sz = sizeof nowhere,
	.context = {.cmd_fd = -1, .async_fd = -1, .abi_compat = __VERBS_ABI_IS_EXTENDED},
};
static uintptr_t object = EOPNOTSUPP; /* the result for a caller that is not known */

/* make_object maps the object at a multiple of 4 GiB. Each object of verbs begins with its context; here all words
 * point to one. */
static void make_object(void)
{
	struct ibv_context *c = &nowhere.context;

	for (uintptr_t high = 1ULL << 40; high < 1ULL << 46; high += 1ULL << 40) {
		char *p = xw_mmap((void *)high, OBJECT, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == MAP_FAILED)
			continue;
		if (p != (char *)high) {
			xw_munmap(p, OBJECT);
			continue;
		}
		for (size_t at = EOPNOTSUPP; at + sizeof c <= OBJECT; at += sizeof c)
			memcpy(p + at, &c, sizeof c);
		object = high + EOPNOTSUPP;
		return;
	}
}

/* returns_pointer reports whether a function of libibverbs returns an object. */
static bool returns_pointer(const char *name)
{
	static const char *const verbs[] = {"ibv_alloc_", "ibv_create_", "ibv_import_", "ibv_open_", "ibv_reg_"};

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		if (strncmp(name, verbs[i], strlen(verbs[i])) == 0)
			return true;
	return false;
}

static uintptr_t operation(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	Dl_info caller;
	uintptr_t result = 0;

	bool known = dladdr(__builtin_return_address(0), &caller) && caller.dli_sname && strstr(caller.dli_fname, "libibverbs");
	if (!known || !returns_pointer(caller.dli_sname)) {
		pthread_once(&once, make_object);
		result = object;
	}
	xw_refused("a function of rdma-core that is newer than libxwarp-verbs.so");
	return result;
}

static void fill(void)
{
	for (size_t i = 0; i < OPERATIONS; i++)
		operations[i] = (uintptr_t)operation;
}

void *xw_no_operations(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill);
	return operations;
}
