/* Helpers for all files, and memory shared with the daemon. */
#include "base.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Version of the control protocol. xwarp doctor reads it from the file. */
EXPORT const uint32_t xwarp_protocol = XW_VERSION;

int xw_fail(int error)
{
	errno = error;
	return -1;
}

void *xw_null(int error)
{
	errno = error;
	return NULL;
}

UNCHECKED void *xw_next(const char *name)
{
	static _Thread_local bool __attribute__((tls_model("initial-exec"))) inside;
	void *found = NULL;

	if (!inside) {
		inside = true;
		found = dlsym(RTLD_NEXT, name);
		inside = false;
	}
	return found;
}

int xw_socket(int family, int type) { return (int)syscall(SYS_socket, family, type | SOCK_CLOEXEC, 0); }

bool xw_uncount(int fd, bool wait)
{
	uint64_t n;
	struct iovec v = {&n, sizeof n};

	return preadv2(fd, &v, 1, -1, wait ? 0 : RWF_NOWAIT) == sizeof n;
}

void xw_warn(const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	fprintf(stderr, "xwarp: %s\n", text);
}

bool xw_first_time(const char *what)
{
	static const char *_Atomic said[64];

	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		const char *none = NULL;
		if (atomic_compare_exchange_strong(&said[i], &none, what))
			return true;
		if (none == what)
			return false;
	}
	return false;
}

int xw_refused(const char *what)
{
	if (xw_first_time(what))
		xw_warn("not supported: %s", what);
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

bool xw_debug(void)
{
	const char *v = secure_getenv("XWARP_DEBUG");

	return v && *v && strcmp(v, "0") != 0;
}

static const char *_Atomic probed;
static atomic_bool did_without;

int xw_refused_probe(const char *what)
{
	if (xw_debug())
		return xw_refused(what);
	probed = what;
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

void xw_did_without(void) { did_without = true; }

__attribute__((destructor)) static void tell_probed(void)
{
	if (probed && !did_without)
		xw_refused(probed);
}

void *xw_map(int fd, size_t n)
{
	struct stat st;
	void *p = MAP_FAILED;

	int seals = fcntl(fd, F_GET_SEALS); /* a truncated file would kill the program with SIGBUS */
	if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &st) == 0 && st.st_size >= 0 && (size_t)st.st_size >= n)
		p = xw_mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	if (xw_madvise(p, n, MADV_POPULATE_WRITE) != 0) { /* the daemon does not allocate pages */
		xw_munmap(p, n);
		return NULL;
	}
	xw_madvise(p, n, MADV_DONTFORK);
	return p;
}

static bool geometry(struct json g, uint64_t *at, uint64_t *slots, uint64_t *size)
{
	return json_number(json_get(g, "offset"), at) && json_number(json_get(g, "slots"), slots) &&
	       json_number(json_get(g, "slot_size"), size) && *at % 64 == 0 && *at < 1U << 31 &&
	       *slots > 0 && *slots <= XW_MAX_CQ_DEPTH && (*slots & (*slots - 1)) == 0 && *size > 0 &&
	       *size % 64 == 0 && *size <= 1 << 16;
}

size_t xw_ring_end(struct json g)
{
	uint64_t at, slots, size;

	return geometry(g, &at, &slots, &size) ? at + XW_RING_SLOTS + slots * size : 0;
}

bool xw_ring_open(struct ring *r, void *mem, size_t n, struct json g)
{
	uint64_t at, slots, size;

	if (!geometry(g, &at, &slots, &size) || at + XW_RING_SLOTS + slots * size > n)
		return false;
	*r = (struct ring){(uint8_t *)mem + at, (uint32_t)slots, (uint32_t)size, 0, false, NULL};
	return true;
}
