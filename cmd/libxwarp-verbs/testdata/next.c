/* next: calls each function of libc that the library replaces, and checks that the call reaches the next definition.
 * The library with these next definitions is built from this file with -DLIBRARY. NAMES is X(name) for each
 * function, from the symbol table of libxwarp-verbs.so. */
#ifdef LIBRARY
void *dlsym(void *handle, const char *name);
#define RTLD_NEXT ((void *)-1L)

/* The arguments of all these functions are integers and pointers, at most six. */
typedef long function(long, long, long, long, long, long);
#define X(name)                                                            \
	long count_##name;                                                 \
	long name(long a, long b, long c, long d, long e, long f);         \
	long name(long a, long b, long c, long d, long e, long f)          \
	{                                                                  \
		static function *next;                                     \
		count_##name++;                                            \
		if (!next)                                                 \
			next = (function *)dlsym(RTLD_NEXT, #name);        \
		return next(a, b, c, d, e, f);                             \
	}
NAMES
#else
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { SIZE = 1 << 16, STAT_VERSION = 1 };

static void *map; /* the current definition of mmap */
static char room[1 << 16];
static char none[256]; /* an empty msghdr or iovec: room has what earlier calls wrote */
static struct dirent **list;

/* ROW defines call_NAME, which calls f once, and returns the number of calls. */
#define ROW(name, params, args)                   \
	static int call_##name(void *f)           \
	{                                         \
		((long (*) params)f) args;        \
		return 1;                         \
	}
#define PATH (const char *)
#define AT (int, const char *, void *, int)
ROW(__lxstat, (int, const char *, void *), (STAT_VERSION, "/", room))
ROW(__lxstat64, (int, const char *, void *), (STAT_VERSION, "/", room))
ROW(__xstat, (int, const char *, void *), (STAT_VERSION, "/", room))
ROW(__xstat64, (int, const char *, void *), (STAT_VERSION, "/", room))
ROW(__open_2, (const char *, int), ("/", O_RDONLY))
ROW(__open64_2, (const char *, int), ("/", O_RDONLY))
ROW(__openat_2, (int, const char *, int), (AT_FDCWD, "/", O_RDONLY))
ROW(__openat64_2, (int, const char *, int), (AT_FDCWD, "/", O_RDONLY))
ROW(__realpath_chk, (const char *, char *, size_t), ("/", room, sizeof room))
ROW(access, (const char *, int), ("/", 0))
ROW(chdir, (const char *), ("/"))
ROW(dlopen, (const char *, int), ("libc.so.6", RTLD_LAZY))
ROW(eaccess, (const char *, int), ("/", 0))
ROW(euidaccess, (const char *, int), ("/", 0))
ROW(faccessat, (int, const char *, int, int), (AT_FDCWD, "/", 0, 0))
ROW(fopen, (const char *, const char *), ("/", "r"))
ROW(fopen64, (const char *, const char *), ("/", "r"))
ROW(fstatat, AT, (AT_FDCWD, "/", room, 0))
ROW(fstatat64, AT, (AT_FDCWD, "/", room, 0))
ROW(getxattr, (const char *, const char *, void *, size_t), ("/", "user.x", room, 1))
ROW(lgetxattr, (const char *, const char *, void *, size_t), ("/", "user.x", room, 1))
ROW(lstat, (const char *, void *), ("/", room))
ROW(lstat64, (const char *, void *), ("/", room))
ROW(open, (const char *, int, ...), ("/", O_RDONLY))
ROW(open64, (const char *, int, ...), ("/", O_RDONLY))
ROW(openat, (int, const char *, int, ...), (AT_FDCWD, "/", O_RDONLY))
ROW(openat64, (int, const char *, int, ...), (AT_FDCWD, "/", O_RDONLY))
ROW(opendir, (const char *), ("/"))
ROW(readlink, (const char *, char *, size_t), ("/", room, 1))
ROW(readlinkat, (int, const char *, char *, size_t), (AT_FDCWD, "/", room, 1))
ROW(realpath, (const char *, char *), ("/", room))
ROW(scandir, (const char *, void *, void *, void *), ("/", &list, NULL, NULL))
ROW(scandir64, (const char *, void *, void *, void *), ("/", &list, NULL, NULL))
ROW(send, (int, void *, size_t, int), (-1, room, 1, 0))
ROW(sendmsg, (int, void *, int), (-1, none, 0))
ROW(sendto, (int, void *, size_t, int, void *, int), (-1, room, 1, 0, NULL, 0))
ROW(socket, (int, int, int), (AF_UNIX, SOCK_STREAM, 0))
ROW(stat, (const char *, void *), ("/", room))
ROW(stat64, (const char *, void *), ("/", room))
ROW(statx, (int, const char *, int, unsigned, void *), (AT_FDCWD, "/", 0, 0, room))
ROW(write, (int, void *, size_t), (-1, room, 1))
ROW(writev, (int, void *, int), (-1, none, 1))

typedef void *mapper(void *, size_t, int, int, int, off_t);

static void *mapped(void *f, void *at, int flags)
{
	void *p = ((mapper *)f)(at, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	if (p == MAP_FAILED || (at && p != at)) {
		perror("mmap");
		exit(1);
	}
	*(char *)p = 1;
	return p;
}

/* call_mmap maps private and shared memory, and both over each other. */
static int call_mmap(void *f)
{
	mapped(f, mapped(f, mapped(f, NULL, MAP_PRIVATE), MAP_SHARED | MAP_FIXED), MAP_PRIVATE | MAP_FIXED);
	return 3;
}

static int call_mmap64(void *f) { return call_mmap(f); }

static int call_munmap(void *f)
{
	int (*unmap)(void *, size_t) = (int (*)(void *, size_t))f;

	if (unmap(mapped(map, NULL, MAP_PRIVATE), SIZE) != 0 || unmap(mapped(map, NULL, MAP_SHARED), SIZE) != 0) {
		perror("munmap");
		exit(1);
	}
	return 2;
}

#define X(name) {#name, "count_" #name, call_##name},
static const struct {
	const char *name, *count;
	int (*call)(void *f);
} rows[] = {NAMES};

int main(void)
{
	int wrong = 0;

	map = dlsym(RTLD_DEFAULT, "mmap");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		long *count = dlsym(RTLD_DEFAULT, rows[i].count), before = *count;
		int calls = rows[i].call(dlsym(RTLD_DEFAULT, rows[i].name));
		if (*count - before != calls) {
			fprintf(stderr, "%ld of %d calls of %s reach the next definition\n", *count - before, calls, rows[i].name);
			wrong = 1;
		}
	}
	if (!wrong)
		puts("all is well");
	return wrong;
}
#endif
