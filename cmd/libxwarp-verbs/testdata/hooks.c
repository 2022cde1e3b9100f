/* hooks code|tables: a registration cache, as libfabric and UCX have. It replaces functions of libc to learn which
 * memory the program unmaps: "code" overwrites the functions themselves, "tables" the entries of each object's table
 * of imported functions. It must notice when the program changes a registered buffer, deregister it at that point, and
 * not notice that the library moves its pages. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition) do if (!(condition)) { fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, \
	strerror(errno)); exit(1); } while (0)

enum { SIZE = 1 << 20 };

static char *buffer;
static struct ibv_mr *cached; /* of buffer */
static int seen;	      /* number of noticed changes of buffer */

static void changes(void *addr, size_t n)
{
	struct ibv_mr *mr = cached;

	if ((char *)addr >= buffer + SIZE || (char *)addr + n <= buffer)
		return;
	seen++;
	cached = NULL;
	if (mr)
		CHECK(ibv_dereg_mr(mr) == 0);
}

static void *hook_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	if (flags & MAP_FIXED)
		changes(addr, n);
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, at);
}

static int hook_munmap(void *addr, size_t n)
{
	changes(addr, n);
	return (int)syscall(SYS_munmap, addr, n);
}

static void *hook_mremap(void *addr, size_t n, size_t new_n, int flags, void *to)
{
	changes(addr, n);
	if (flags & MREMAP_FIXED)
		changes(to, new_n);
	return (void *)syscall(SYS_mremap, addr, n, new_n, flags, to);
}

static int hook_madvise(void *addr, size_t n, int advice)
{
	if (advice == MADV_DONTNEED)
		changes(addr, n);
	return (int)syscall(SYS_madvise, addr, n, advice);
}

static const struct hook {
	const char *name;
	uintptr_t to;
} hooks[] = {
	{"mmap", (uintptr_t)hook_mmap}, {"munmap", (uintptr_t)hook_munmap}, {"mremap", (uintptr_t)hook_mremap},
	{"madvise", (uintptr_t)hook_madvise},
};

enum { HOOKS = sizeof hooks / sizeof *hooks };

static void writable(uintptr_t at, size_t n, int prot)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = at & ~(page - 1);

	CHECK(mprotect((void *)start, at + n - start, prot) == 0);
}

/* jump overwrites the start of a function. */
static void jump(char *from, uintptr_t to)
{
#if defined __x86_64__
	const unsigned char code[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* movabs to, %rax; jmp *%rax */
	const size_t at = 2;
#elif defined __aarch64__
	const unsigned char code[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; /* ldr x16, to; br x16 */
	const size_t at = 8;
#else
#error unknown processor
#endif
	writable((uintptr_t)from, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy(from, code, sizeof code);
	memcpy(from + at, &to, sizeof to);
	__builtin___clear_cache(from, from + sizeof code);
}

static uintptr_t entry(const struct dl_phdr_info *o, const ElfW(Dyn) *dyn, ElfW(Sxword) tag)
{
	for (; dyn->d_tag != DT_NULL; dyn++)
		if (dyn->d_tag == tag) /* ld.so has relocated pointers, except in the vDSO */
			return dyn->d_un.d_ptr < o->dlpi_addr && tag != DT_RELASZ && tag != DT_PLTRELSZ ? 0 : dyn->d_un.d_ptr;
	return 0;
}

static void redirect(const struct dl_phdr_info *o, const ElfW(Dyn) *dyn, ElfW(Sxword) list, ElfW(Sxword) size)
{
	const ElfW(Rela) *r = (const void *)entry(o, dyn, list);
	const ElfW(Sym) *symbols = (const void *)entry(o, dyn, DT_SYMTAB);
	const char *names = (const char *)entry(o, dyn, DT_STRTAB);

	for (size_t n = r && symbols && names ? entry(o, dyn, size) / sizeof *r : 0; n > 0; n--, r++)
		for (int i = 0; i < HOOKS; i++)
			if (r->r_addend == 0 && strcmp(names + symbols[ELF64_R_SYM(r->r_info)].st_name, hooks[i].name) == 0) {
				uintptr_t at = o->dlpi_addr + r->r_offset;
				writable(at, sizeof at, PROT_READ | PROT_WRITE);
				*(uintptr_t *)at = hooks[i].to;
			}
}

static int object(struct dl_phdr_info *o, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (int i = 0; i < o->dlpi_phnum; i++)
		if (o->dlpi_phdr[i].p_type == PT_DYNAMIC) {
			const ElfW(Dyn) *dyn = (const void *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr);
			redirect(o, dyn, DT_RELA, DT_RELASZ);
			redirect(o, dyn, DT_JMPREL, DT_PLTRELSZ);
		}
	return 0;
}

static void change_munmap(void) { CHECK(munmap(buffer, SIZE) == 0); }
static void change_madvise(void) { CHECK(madvise(buffer, SIZE, MADV_DONTNEED) == 0); }
static void change_mremap(void) { CHECK(mremap(buffer, SIZE, SIZE / 2, 0) == buffer); }

static void change_mmap(void)
{
	CHECK(mmap(buffer, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buffer);
}

static void change_mmap_shared(void)
{
	CHECK(mmap(buffer, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buffer);
}

int main(int argc, char **argv)
{
	void (*const ways[])(void) = {change_munmap, change_mmap, change_mmap_shared, change_mremap, change_madvise};
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 2 && list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	CHECK(pd);
	if (strcmp(argv[1], "code") == 0) {
		void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
		for (int i = 0; i < HOOKS; i++)
			jump(dlsym(libc, hooks[i].name), hooks[i].to);
	} else {
		dl_iterate_phdr(object, NULL);
	}
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		buffer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(buffer != MAP_FAILED);
		memset(buffer, 7, SIZE);
		seen = 0;
		for (int again = 0; again < 2; again++) { /* the second time, pages have moved in and out */
			CHECK((cached = ibv_reg_mr(pd, buffer, SIZE, IBV_ACCESS_LOCAL_WRITE)));
			if (!again)
				CHECK(ibv_dereg_mr(cached) == 0);
		}
		CHECK(seen == 0);
		ways[i]();
		if (seen != 1 || cached) {
			fprintf(stderr, "change %zu of the buffer was seen %d times\n", i, seen);
			exit(1);
		}
	}
	puts("all is well");
	return 0;
}
