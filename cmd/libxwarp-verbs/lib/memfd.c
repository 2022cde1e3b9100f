/* Memory that is already shared and must stay shared. The daemon maps it by its descriptor: memfds, and files on
 * tmpfs and hugetlbfs that the program has open or that still have their names.
 *
 * MAP_SHARED | MAP_ANONYMOUS memory has no descriptor, and only root could get one. So mmap returns a memfd mapping
 * instead, which behaves the same, also in children. Its descriptor has a high number, and is kept until the memory
 * is unmapped. If a program closes all descriptors the memory remains, but without remote access.
 *
 * Programs may call mmap and munmap anywhere, also from an allocator or in a child: they use no lock and no heap. */
#include "memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* kept is a mapping of such memory. */
struct kept {
	_Atomic uintptr_t start; /* FREE, CLAIMED, or the address of the mapping */
	uintptr_t end;
	int fd;
	dev_t device;
	ino_t inode;
};

enum { FREE, CLAIMED };

/* all holds the mappings whose descriptors are kept. When it is full, further mappings have no memfd. */
static struct kept all[256];

struct wanted {
	dev_t device;
	ino_t inode;
};

/* is_wanted_file reports whether a descriptor refers to the wanted file and the file supports seals, as memfds and
 * files on tmpfs and hugetlbfs do. It checks seals first: any other query about a FUSE file would wait for its server. */
static bool is_wanted_file(int fd, const struct wanted *w)
{
	struct stat st;

	return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode;
}

/* can_map reports whether the daemon would map a file. */
static bool can_map(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	return (seals & F_SEAL_SHRINK || !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))) &&
	       (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
}

/* duplicate duplicates a descriptor of the wanted file. It returns -1 if fd is of another one. */
static int duplicate(int fd, const struct wanted *w)
{
	if (!is_wanted_file(fd, w) || !can_map(fd) || (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return -1;
	if (is_wanted_file(fd, w) && can_map(fd)) /* otherwise the program closed it and opened another one */
		return fd;
	close(fd);
	return -1;
}

/* reopen opens a file by its name, or returns -1 if it is not the wanted one. It does not open devices, which may
 * have side effects. */
static int reopen(const char *path, const struct wanted *w)
{
	char again[32];
	struct stat st;
	FD name = open(path, O_PATH | O_CLOEXEC);
	int fd = -1;

	snprintf(again, sizeof again, "/proc/self/fd/%d", name);
	if (name >= 0 && fstat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == w->device && st.st_ino == w->inode)
		fd = open(again, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !(is_wanted_file(fd, w) && can_map(fd))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int xw_find_file(dev_t device, ino_t inode, const char *path)
{
	struct wanted w = {device, inode};
	DIR *dir = opendir("/proc/self/fd");
	int found = -1;

	for (struct dirent *e; dir && found < 0 && (e = readdir(dir));)
		if (*e->d_name != '.' && atoi(e->d_name) != dirfd(dir))
			found = duplicate(atoi(e->d_name), &w);
	if (dir)
		closedir(dir);
	return found >= 0 ? found : reopen(path, &w);
}

/* upper_half returns the start of the upper half of the descriptor range. */
static int upper_half(void)
{
	struct rlimit files;

	return getrlimit(RLIMIT_NOFILE, &files) != 0 ? 512 : files.rlim_cur > 1 << 20 ? 1 << 19 : (int)files.rlim_cur / 2;
}

/* create creates a memfd of *n bytes, rounded up to pages; huge pages if the flags of mmap request them. It returns
 * -1 on error. */
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
		if (*n <= size.rlim_cur && /* otherwise ftruncate raises SIGXFSZ */
		    ftruncate(fd, (off_t)*n) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
			kept = fcntl(fd, F_DUPFD_CLOEXEC, upper_half());
	}
	close(fd);
	return kept;
}

/* release closes the descriptor of a mapping that is unmapped. It claims the entry first, because another thread may
 * do the same. */
static void release(struct kept *k, uintptr_t start)
{
	if (!atomic_compare_exchange_strong(&k->start, &start, CLAIMED))
		return;
	struct wanted w = {k->device, k->inode};
	bool there = xw_mapped(w.device, w.inode);
	if (!there && is_wanted_file(k->fd, &w)) /* else the program closed it */
		close(k->fd);
	k->start = there ? start : FREE;
}

/* release_range releases mappings that the program unmapped or mapped over. */
UNCHECKED static void release_range(void *addr, size_t n)
{
	uintptr_t from = (uintptr_t)addr, to = from + n;
	int before = errno;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		uintptr_t start = all[i].start;
		if (start > CLAIMED && start < to && all[i].end > from)
			release(&all[i], start);
	}
	errno = before;
}

/* claim returns an unused entry, or NULL. If all are used it checks one, whose memory may have been unmapped
 * unnoticed: by mremap, or by a system call. */
static struct kept *claim(void)
{
	static atomic_uint turn;
	size_t n = sizeof all / sizeof *all;

	for (size_t i = 0; i < n; i++) {
		uintptr_t none = FREE;
		if (atomic_compare_exchange_strong(&all[i].start, &none, CLAIMED))
			return &all[i];
	}
	struct kept *k = &all[turn++ % n];
	uintptr_t start = k->start, none = FREE;
	if (start > CLAIMED)
		release(k, start);
	return atomic_compare_exchange_strong(&k->start, &none, CLAIMED) ? k : NULL;
}

typedef void *mapper(void *addr, size_t n, int prot, int flags, int fd, off_t at);

/* map_memfd returns MAP_FAILED if no memfd can be created. */
static void *map_memfd(mapper *next, void *addr, size_t n, int prot, int flags)
{
	size_t room = n;
	struct kept *k = n > 0 && n <= XW_MAX_REGION ? claim() : NULL;
	struct stat st;
	int fd = k ? create(&room, flags, &st) : -1;
	void *p = fd >= 0 ? next(addr, n, prot, flags & ~MAP_ANONYMOUS, fd, 0) : MAP_FAILED;

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

/* map is mmap. next is NULL if an allocator calls it inside of dlsym. */
UNCHECKED static void *map(mapper *next, void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	bool shared = (flags & (MAP_TYPE | MAP_ANONYMOUS)) == (MAP_SHARED | MAP_ANONYMOUS);
	void *p = MAP_FAILED;

	if (!next)
		next = xw_mmap;
	if (shared && !(prot & PROT_EXEC)) { /* vm.memfd_noexec may forbid executable memfds */
		int before = errno;
		p = map_memfd(next, addr, n, prot, flags);
		errno = before;
	}
	if (p == MAP_FAILED)
		p = next(addr, n, prot, flags, fd, at);
	if (p != MAP_FAILED && flags & MAP_FIXED)
		release_range(p, n);
	return p;
}

FIND(void *, mmap, (void *, size_t, int, int, int, off_t))
FIND(void *, mmap64, (void *, size_t, int, int, int, off_t))
FIND(int, munmap, (void *, size_t))

EXPORT UNCHECKED void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	if (!found_mmap)
		find_mmap();
	return map(found_mmap, addr, n, prot, flags, fd, at);
}

EXPORT UNCHECKED void *mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	if (!found_mmap64)
		find_mmap64();
	return map(found_mmap64, addr, n, prot, flags, fd, at);
}

EXPORT UNCHECKED int munmap(void *addr, size_t n)
{
	if (!found_munmap)
		find_munmap();
	int (*next)(void *, size_t) = found_munmap;
	int result = next ? next(addr, n) : xw_munmap(addr, n);

	if (result == 0)
		release_range(addr, n);
	return result;
}
