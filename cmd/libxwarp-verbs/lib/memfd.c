/* Memory that is shared already, which must stay shared, and that the daemon maps by its descriptor: memfds, and files on
 * tmpfs and hugetlbfs, that the program has open, or whose names are still theirs.
 *
 * MAP_SHARED | MAP_ANONYMOUS memory has no descriptor, and only root could get one. So mmap gives programs that ask for it
 * a memfd in its place, which behaves the same, children included. Its descriptor is kept, far above those of the program,
 * until the memory is unmapped. A program that closes all descriptors has such memory still, but no remote access to it.
 *
 * A program may call mmap and munmap anywhere, also from an allocator, and in a child: no lock and no heap here. */
#include "memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* kept is a piece of such memory. */
struct kept {
	_Atomic uintptr_t start; /* FREE, CLAIMED, or where it was mapped */
	uintptr_t end;
	int fd;
	dev_t device;
	ino_t inode;
};

enum { FREE, CLAIMED };

/* all bounds the descriptors that are kept. What is mapped beyond has none. */
static struct kept all[256];

struct entry { /* of a directory, as getdents64 has it */
	uint64_t inode, offset;
	uint16_t length;
	uint8_t type;
	char name[];
};

/* each_descriptor calls f for the descriptors of this process until it returns true. */
static void each_descriptor(bool (*f)(int fd, void *arg), void *arg)
{
	_Alignas(struct entry) char list[2048];
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool done = false;

	for (long n; dir >= 0 && !done && (n = syscall(SYS_getdents64, dir, list, sizeof list)) > 0;)
		for (long at = 0; at < n && !done;) {
			struct entry *e = (struct entry *)(void *)(list + at);
			int fd = 0;
			for (const char *p = e->name; *p >= '0' && *p <= '9'; p++)
				fd = fd * 10 + (*p - '0');
			if (*e->name != '.' && fd != dir)
				done = f(fd, arg);
			at += e->length;
		}
	if (dir >= 0)
		close(dir);
}

struct wanted {
	dev_t device;
	ino_t inode;
	int found;
};

/* is says whether a descriptor is the file that is wanted, and one with seals, as memfds and files on tmpfs and hugetlbfs are.
 * Seals come first: any other question about a file that a program serves (FUSE) waits for that program. */
static bool is(int fd, const struct wanted *w)
{
	struct stat st;

	return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode;
}

/* can_map says whether the daemon would map a file. */
static bool can_map(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	return (seals & F_SEAL_SHRINK || !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))) &&
	       (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
}

static bool find(int fd, void *arg)
{
	struct wanted *w = arg;

	if (!is(fd, w) || !can_map(fd) || (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return false;
	if (is(fd, w) && can_map(fd)) /* else the program closed it meanwhile, and opened another */
		w->found = fd;
	else
		close(fd);
	return w->found >= 0;
}

/* reopen opens a file by its name; -1: it is not the one that is wanted. Devices are not opened: that may have effects. */
static int reopen(const char *path, const struct wanted *w)
{
	char again[32];
	struct stat st;
	int fd = -1, name = open(path, O_PATH | O_CLOEXEC);

	snprintf(again, sizeof again, "/proc/self/fd/%d", name);
	if (name >= 0 && fstat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == w->device && st.st_ino == w->inode)
		fd = open(again, O_RDWR | O_CLOEXEC);
	if (name >= 0)
		close(name);
	if (fd >= 0 && !(is(fd, w) && can_map(fd))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int xw_find_file(dev_t device, ino_t inode, const char *path)
{
	struct wanted w = {device, inode, -1};

	each_descriptor(find, &w);
	return w.found >= 0 ? w.found : reopen(path, &w);
}

/* above returns where the upper half of the descriptors begins that there can be. */
static int above(void)
{
	struct rlimit files;

	return getrlimit(RLIMIT_NOFILE, &files) != 0 ? 512 : files.rlim_cur > 1 << 20 ? 1 << 19 : (int)files.rlim_cur / 2;
}

/* create makes a memfd of *n bytes, rounded up to pages: huge ones where the flags of mmap ask for them. -1: it could not. */
static int create(size_t *n, int flags, struct stat *st)
{
	unsigned huge = flags & MAP_HUGETLB ? MFD_HUGETLB | ((unsigned)flags & (unsigned)MAP_HUGE_MASK << MAP_HUGE_SHIFT) : 0;
	int fd = memfd_create("xwarp-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge), kept = -1;
	struct rlimit size;

	if (fd < 0)
		return -1;
	if (fstat(fd, st) == 0 && getrlimit(RLIMIT_FSIZE, &size) == 0) {
		size_t page = huge ? (size_t)st->st_blksize : (size_t)sysconf(_SC_PAGESIZE);
		*n = (*n + page - 1) / page * page;
		if (*n <= size.rlim_cur && /* else ftruncate raises SIGXFSZ */
		    ftruncate(fd, (off_t)*n) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
			kept = fcntl(fd, F_DUPFD_CLOEXEC, above());
	}
	close(fd);
	return kept;
}

/* claim returns an entry that nobody uses; NULL: there is none. */
static struct kept *claim(void)
{
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		uintptr_t none = FREE;
		if (atomic_compare_exchange_strong(&all[i].start, &none, CLAIMED))
			return &all[i];
	}
	return NULL;
}

/* mmap and munmap are called before the sanitizer of threads is ready. */
#define UNCHECKED __attribute__((no_sanitize("thread")))

UNCHECKED static void *raw_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, at);
}

/* map_memfd returns MAP_FAILED where there can be no memfd. */
static void *map_memfd(void *addr, size_t n, int prot, int flags)
{
	size_t room = n;
	struct kept *k = n > 0 && n <= XW_MAX_REGION ? claim() : NULL;
	struct stat st;
	int fd = k ? create(&room, flags, &st) : -1;
	void *p = fd >= 0 ? raw_mmap(addr, n, prot, flags & ~MAP_ANONYMOUS, fd, 0) : MAP_FAILED;

	if (p == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		if (k)
			k->start = FREE;
		return p;
	}
	k->end = (uintptr_t)p + room;
	k->fd = fd;
	k->device = st.st_dev;
	k->inode = st.st_ino;
	k->start = (uintptr_t)p;
	return p;
}

EXPORT UNCHECKED void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	bool shared = (flags & (MAP_TYPE | MAP_ANONYMOUS)) == (MAP_SHARED | MAP_ANONYMOUS);

	if (shared && !(prot & PROT_EXEC)) { /* a memfd may be barred from that (vm.memfd_noexec) */
		int before = errno;
		void *p = map_memfd(addr, n, prot, flags);
		errno = before;
		if (p != MAP_FAILED)
			return p;
	}
	return raw_mmap(addr, n, prot, flags, fd, at);
}

EXPORT void *mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t at) __attribute__((alias("mmap")));

/* release closes the descriptor of a piece that is not mapped any more. The entry is claimed before xw_mapped looks: that maps
 * and unmaps memory, too, perhaps just where the piece was. */
static void release(struct kept *k, uintptr_t start)
{
	struct wanted w = {k->device, k->inode, -1};

	if (!atomic_compare_exchange_strong(&k->start, &start, CLAIMED))
		return;
	bool there = xw_mapped(w.device, w.inode);
	if (!there && is(k->fd, &w)) /* else the program closed it */
		close(k->fd);
	k->start = there ? start : FREE;
}

EXPORT UNCHECKED int munmap(void *addr, size_t n)
{
	uintptr_t from = (uintptr_t)addr, to = from + n;
	int result = (int)syscall(SYS_munmap, addr, n), before = errno;

	for (size_t i = 0; result == 0 && i < sizeof all / sizeof *all; i++) {
		uintptr_t start = all[i].start;
		if (start > CLAIMED && start < to && all[i].end > from)
			release(&all[i], start);
	}
	errno = before;
	return result;
}
