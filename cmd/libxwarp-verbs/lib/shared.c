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

bool xw_map(struct area *a, int fd)
{
	struct stat st;
	void *p = MAP_FAILED;

	int seals = fcntl(fd, F_GET_SEALS); /* a truncated file would kill the program with SIGBUS */
	if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &st) == 0)
		p = xw_mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return false;
	*a = (struct area){p, (size_t)st.st_size};
	if (xw_madvise(p, a->len, MADV_POPULATE_WRITE) != 0) { /* the daemon does not allocate pages */
		xw_unmap(a);
		return false;
	}
	xw_madvise(p, a->len, MADV_DONTFORK);
	return true;
}

void xw_unmap(struct area *a)
{
	if (a->mem)
		xw_munmap(a->mem, a->len);
	a->mem = NULL;
}

bool xw_ring_open(struct ring *r, const struct area *a, struct json g, size_t least)
{
	uint32_t at, slots, size;

	if (!json_u32(g, "offset", &at) || !json_u32(g, "slots", &slots) || !json_u32(g, "slot_size", &size) || at % 64 != 0 ||
	    slots == 0 || slots > XW_MAX_CQ_DEPTH || (slots & (slots - 1)) != 0 || size < least || size % 64 != 0 ||
	    size > 1 << 16 || at + XW_RING_SLOTS + (uint64_t)slots * size > a->len)
		return false;
	*r = (struct ring){.mem = a->mem + at, .slots = slots, .size = size};
	return true;
}
