/* Memory of the program that the daemon can map.
 *
 * Registered pages are moved, transparently to the program, to the arena: one sparse memfd in which the offset of a
 * byte is its address. So each range is one piece of one file, and overlapping regions share pages. When the last
 * region that covers a page is deregistered, the page becomes private again, as fork, realloc and calloc require.
 *
 * While pages are copied, userfaultfd blocks other threads that write to them. Without userfaultfd such a write can
 * be lost.
 *
 * Untouched anonymous pages read as zeros and are not copied. They are still allocated in the arena, since the
 * daemon does not allocate any. */
#include "memory.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct share {
	uintptr_t start, end; /* pages */
	struct share *next;
};

struct vma { /* a line of /proc/self/maps */
	uintptr_t start, end;
	int prot;
	bool shared, stack;
	uint64_t offset, inode;
	dev_t device; /* device of the file system */
	const char *path; /* to the end of the line */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct share *shares;
static int arena = -1;
static uint64_t arena_inode;
static dev_t arena_device;

int xw_arena(void) { return arena; }

static int open_arena(void)
{
	struct stat st;

	if (arena >= 0)
		return 0;
	int fd = memfd_create("xwarp-verbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return errno;
	if (ftruncate(fd, (off_t)XW_MAX_OFFSET) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0 || fstat(fd, &st) != 0) {
		int error = errno;
		close(fd);
		return error;
	}
	arena = fd;
	arena_inode = st.st_ino;
	arena_device = st.st_dev;
	return 0;
}

/* read_maps returns the text of /proc/self/maps, and its size for munmap. The text is not on the heap, because the
 * heap may be what moves. */
static char *read_maps(size_t *room)
{
	size_t n = 0;
	FD fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char *text = MAP_FAILED;

	*room = 1 << 16;
	if (fd >= 0)
		text = xw_mmap(NULL, *room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (text != MAP_FAILED) {
		ssize_t got = read(fd, text + n, *room - n - 1);
		if (got <= 0)
			break;
		n += (size_t)got;
		if (n + 1 == *room) {
			char *more = xw_mremap(text, *room, *room * 2, MREMAP_MAYMOVE, NULL);
			if (more == MAP_FAILED)
				xw_munmap(text, *room);
			else
				*room *= 2;
			text = more;
		}
	}
	return text == MAP_FAILED ? NULL : text;
}

/* next_vma parses a line and advances to the next. */
static bool next_vma(char **at, struct vma *v)
{
	unsigned long start, end, offset, inode;
	unsigned major, minor;
	int path = 0;
	char r, w, x, s, *line = *at, *stop = strchr(line, '\n');

	if (!stop)
		return false;
	*stop = 0;
	*at = stop + 1;
	if (sscanf(line, "%lx-%lx %c%c%c%c %lx %x:%x %lu %n", &start, &end, &r, &w, &x, &s, &offset, &major, &minor, &inode,
		   &path) != 10)
		return false;
	*v = (struct vma){start, end, (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0) | (x == 'x' ? PROT_EXEC : 0),
			  s == 's', strcmp(line + path, "[stack]") == 0, offset, inode, makedev(major, minor), line + path};
	return true;
}

bool xw_mapped(dev_t device, ino_t inode)
{
	size_t room;
	char *text = read_maps(&room), *at = text;
	struct vma v;
	bool found = !text;

	while (!found && next_vma(&at, &v))
		found = v.inode == inode && v.device == device;
	if (text)
		xw_munmap(text, room);
	return found;
}

/* protect blocks writers to present pages until the descriptor that it returns is closed. With missing, it also
 * blocks the first access to pages of anonymous memory. It returns -1 if it cannot block them. */
static int protect(uintptr_t start, size_t n, bool missing)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	struct uffdio_register reg = {
		.range = {start, n}, .mode = UFFDIO_REGISTER_MODE_WP | (missing ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};
	struct uffdio_writeprotect wp = {.range = {start, n}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &reg) != 0 || ioctl(fd, UFFDIO_WRITEPROTECT, &wp) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void unprotect(int fd)
{
	if (fd >= 0)
		close(fd); /* wakes blocked threads */
}

/* transfer copies pages to the arena (SYS_pwrite64) or from it. It uses the raw system call, because sanitizers
 * object to whole pages. */
static int transfer(long call, uintptr_t memory, uintptr_t at, size_t n)
{
	while (n > 0) {
		long done = syscall(call, arena, memory, n, at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? errno : EIO;
		memory += (uintptr_t)done;
		at += (uintptr_t)done;
		n -= (size_t)done;
	}
	return 0;
}

/* HOLE is the shortest run of untouched pages, in bytes, that is skipped: each skip costs some system calls. */
#define HOLE (256 << 10)

/* THERE are the bits of an entry of /proc/self/pagemap for a page in memory or in swap. */
#define THERE (3ULL << 62)

enum { STATES = 512 };

/* page_states reads the entries of pagemap for pages from start on. It returns 0 if they cannot be read. */
static size_t page_states(int pagemap, uintptr_t start, uintptr_t end, uint64_t state[STATES])
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	size_t n = (end - start) / page;

	n = n < STATES ? n : STATES;
	ssize_t got = pread(pagemap, state, n * sizeof *state, (off_t)(start / page * sizeof *state));
	return got < 0 ? 0 : (size_t)got / sizeof *state;
}

/* run_end returns the end of the run of pages that begins at start. *hole is set if the pages are untouched, and not
 * set if they must be copied. */
static uintptr_t run_end(int pagemap, uintptr_t start, uintptr_t end, bool *hole)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = start, gap = start; /* pages from gap to at are untouched */
	uint64_t state[STATES];
	size_t n = 0;

	*hole = false;
	while (at < end && (n = page_states(pagemap, at, end, state)) > 0)
		for (size_t i = 0; i < n; i++, at += page)
			if (state[i] & THERE) {
				if (at - gap >= HOLE)
					goto found;
				gap = at + page;
			}
	if (n == 0 || end - gap < HOLE)
		return end;
found:
	*hole = gap == start;
	return *hole ? at : gap;
}

/* copy_in copies pages to the arena, except those that are untouched according to pagemap. If pagemap is -1, it
 * copies all. */
static int copy_in(uintptr_t start, uintptr_t end, int pagemap)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uint64_t state[STATES];
	int error = 0;

	if (pagemap < 0)
		return transfer(SYS_pwrite64, start, start, end - start);
	for (size_t n; !error && start < end; start += n * page) {
		if ((n = page_states(pagemap, start, end, state)) == 0)
			return EIO;
		for (size_t i = 0; !error && i < n; i++)
			if (state[i] & THERE) /* it was touched in the meantime */
				error = transfer(SYS_pwrite64, start + i * page, start + i * page, page);
	}
	return error;
}

/* clear frees [start, end) in the arena. */
static void clear(uintptr_t start, uintptr_t end)
{
	fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start));
}

/* move_in replaces [start, end) by pages of the arena. pagemap is -1 if no page may count as untouched. Between
 * protect and unprotect, nothing here may write to the heap. */
static int move_in(uintptr_t start, uintptr_t end, int prot, int pagemap)
{
	if (pagemap < 0)
		xw_madvise((void *)start, end - start, MADV_POPULATE_READ); /* only present pages can be protected */
	else
		clear(start, end); /* the arena may have old data of a buffer that grew while it was registered */
	int guard = protect(start, end - start, pagemap >= 0), error = copy_in(start, end, pagemap);

	if (!error && xw_mmap((void *)start, end - start, prot, MAP_SHARED | MAP_FIXED, arena, (off_t)start) == MAP_FAILED)
		error = errno;
	unprotect(guard);
	if (error)
		clear(start, end);
	else if (pagemap >= 0)
		error = fallocate(arena, 0, (off_t)start, (off_t)(end - start)) == 0 ? 0 : ENOMEM;
	else if (prot & PROT_WRITE)
		xw_madvise((void *)start, end - start, MADV_POPULATE_WRITE);
	return error;
}

/* move_out makes n bytes at start private again. They are at offset at in the arena. */
static int move_out(uintptr_t start, uintptr_t at, size_t n, int prot)
{
	void *copy = xw_mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return ENOMEM;
	int guard = protect(start, n, false);
	int error = transfer(SYS_pread64, (uintptr_t)copy, at, n);
	if (!error && (mprotect(copy, n, prot) != 0 ||
		       xw_mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED))
		error = errno;
	unprotect(guard);
	if (error)
		xw_munmap(copy, n);
	return error;
}

/* of_arena reports whether a mapping is part of the arena. Inode numbers are unique only within a file system. */
static bool of_arena(const struct vma *v)
{
	return v->shared && v->inode == arena_inode && v->device == arena_device;
}

static bool ours(const struct vma *v) { return of_arena(v) && v->offset == v->start; }

/* rights are the access rights that the program itself needs for a region. */
static int rights;

static bool allowed(const struct vma *v) { return (v->prot & rights) == rights; }

/* check_piece checks whether a mapping is in the arena or can be moved there. It returns 0 or errno. */
static int check_piece(const struct vma *v)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (!allowed(v))
		return EFAULT;
	if (ours(v))
		return 0;
	if (v->stack || (v->start <= here && here < v->end) || v->shared)
		return EOPNOTSUPP;
	return 0;
}

/* each_piece calls f for the mappings in [start, end). For unmapped parts it fails with EFAULT, unless holes are
 * allowed. */
static int each_piece(uintptr_t start, uintptr_t end, bool holes, int (*f)(const struct vma *v))
{
	size_t room;
	char *text = read_maps(&room), *at = text;
	struct vma v;
	int error = text ? 0 : ENOMEM;

	while (!error && start < end && next_vma(&at, &v)) {
		if (v.end <= start)
			continue;
		if (v.start > start && (!holes || v.start >= end))
			break;
		if (v.start > start)
			start = v.start;
		v.offset += start - v.start;
		v.start = start;
		v.end = v.end < end ? v.end : end;
		error = f(&v);
		start = v.end;
	}
	if (text)
		xw_munmap(text, room);
	return error ? error : start < end && !holes ? EFAULT : 0;
}

/* shared reports whether a share overlaps [start, end). */
static bool shared(uintptr_t start, uintptr_t end)
{
	struct share *s = shares;

	while (s && (s->end <= start || s->start >= end))
		s = s->next;
	return s;
}

/* Range of the arena that no_stranger looks for. */
static uintptr_t wanted_from, wanted_to;

/* no_stranger rejects mappings of the wanted range of the arena at another address: the program moved them there. */
static int no_stranger(const struct vma *v)
{
	bool wanted = v->offset < wanted_to && v->offset + (v->end - v->start) > wanted_from;

	return of_arena(v) && v->offset != v->start && wanted ? EOPNOTSUPP : 0;
}

/* vacant checks whether [start, end) is free in the arena: 0 or errno. It is not free if the program moved a
 * registered region away from there: its bytes stay in the arena until it is deregistered. */
static int vacant(uintptr_t start, uintptr_t end)
{
	wanted_from = start;
	wanted_to = end;
	return shared(start, end) ? each_piece(0, UINTPTR_MAX, true, no_stranger) : 0;
}

/* Range of the arena that back_piece makes private. */
static uintptr_t back_from, back_to;

/* back_piece makes the range private at whichever address it is mapped: the program may have moved it (mremap). If
 * mremap also made it longer, the part behind it is included up to the next share. */
static int back_piece(const struct vma *v)
{
	uintptr_t at = v->offset > back_from ? v->offset : back_from, stop = v->offset + (v->end - v->start);

	if (!of_arena(v) || at >= back_to || at >= stop)
		return 0;
	for (struct share *s = shares; s && stop > back_to; s = s->next)
		if (s->start < stop && s->end > back_to)
			stop = s->start > back_to ? s->start : back_to;
	return move_out(v->start + (at - v->offset), at, stop - at, v->prot);
}

/* back makes [from, to) of the arena private. */
static int back(uintptr_t from, uintptr_t to)
{
	back_from = from;
	back_to = to;
	return each_piece(0, UINTPTR_MAX, true, back_piece);
}

static int move_piece(const struct vma *v)
{
	FD pagemap = -1;
	int error = 0;

	if (ours(v))
		return 0;
	if (v->inode == 0 && v->prot & PROT_WRITE) /* otherwise untouched pages are not zero, or cannot be populated */
		pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	for (uintptr_t at = v->start, stop = v->end; !error && at < v->end; at = stop, stop = v->end) {
		bool hole = false;
		if (pagemap >= 0)
			stop = run_end(pagemap, at, v->end, &hole);
		hole = hole && !shared(at, stop); /* otherwise the arena has data from before the program unmapped it */
		error = move_in(at, stop, v->prot, hole ? pagemap : -1);
	}
	return error;
}

/* give_back makes the part of [start, end) private that no share covers. */
static void give_back(uintptr_t start, uintptr_t end)
{
	while (start < end) {
		uintptr_t stop = end;
		bool covered = false;
		for (struct share *s = shares; s; s = s->next) {
			if (s->start <= start && start < s->end) {
				start = s->end;
				covered = true;
				break;
			}
			if (s->start > start && s->start < stop)
				stop = s->start;
		}
		if (covered)
			continue;
		if (back(start, stop) == 0)
			clear(start, stop);
		start = stop;
	}
}

/* move replaces [start, end) by pages of the arena. */
static int move(uintptr_t start, uintptr_t end)
{
	int error = each_piece(start, end, false, check_piece);

	if (!error)
		error = vacant(start, end);
	if (!error && (error = each_piece(start, end, false, move_piece)))
		give_back(start, end);
	return error;
}

int xw_share(void *addr, size_t length, bool write, struct share **out)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr;
	struct share *s;
	int error;

	if (length == 0 || length > XW_MAX_REGION || from >= XW_MAX_OFFSET || length > XW_MAX_OFFSET - from)
		return EINVAL;
	if (!(s = calloc(1, sizeof *s)))
		return ENOMEM;
	LOCKED(&lock) {
		rights = PROT_READ | (write ? PROT_WRITE : 0);
		error = open_arena();
		for (bool again = !error; again; again = error == EINVAL && page <= 1 << 30) {
			s->start = from & ~(page - 1);
			s->end = (from + length + page - 1) & ~(page - 1);
			error = move(s->start, s->end);
			page *= 512; /* mmap returns EINVAL for a part of a huge page (2 MiB or 1 GiB) */
		}
		if (!error) {
			LINK(shares, s);
			*out = s;
		}
	}
	if (error)
		free(s);
	return error;
}

/* State of same_file for a range. */
static struct vma whole;
static char whole_path[PATH_MAX];

/* same_file rejects a range that is not one contiguous range of one shared file. */
static int same_file(const struct vma *v)
{
	if (!v->shared || v->inode == 0 || of_arena(v))
		return EOPNOTSUPP;
	if (!allowed(v))
		return EFAULT;
	if (whole.inode == 0) {
		whole = *v;
		snprintf(whole_path, sizeof whole_path, "%s", v->path);
	} else if (v->inode != whole.inode || v->device != whole.device || v->offset != whole.offset + (v->start - whole.start)) {
		return EOPNOTSUPP;
	}
	return 0;
}

int xw_file_of(void *addr, size_t length, bool write, int *file, uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr, start = from & ~(page - 1);
	uintptr_t end = (from + length + page - 1) & ~(page - 1);
	char path[PATH_MAX];
	struct vma v;
	int error;

	LOCKED(&lock) {
		whole = (struct vma){0};
		rights = PROT_READ | (write ? PROT_WRITE : 0);
		if ((error = each_piece(start, end, false, same_file)))
			return error;
		v = whole;
		strcpy(path, whole_path);
	}
	if ((*file = xw_find_file(v.device, v.inode, path)) < 0)
		return EBADF;
	*offset = v.offset + (from - start);
	/* The daemon does not allocate pages. */
	if (xw_madvise((void *)start, end - start, v.prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
		return 0;
	error = errno;
	close(*file);
	return error;
}

void xw_unshare(struct share *s)
{
	LOCKED(&lock)
		if (UNLINK(shares, s)) /* otherwise it belongs to the parent */
			give_back(s->start, s->end);
	free(s);
}

bool xw_memory_freeze(void)
{
	pthread_mutex_lock(&lock);
	return shares != NULL;
}

void xw_memory_thaw(void) { pthread_mutex_unlock(&lock); }

/* xw_memory_copy leaves the arena to the parent. Memory that cannot be copied is unmapped: no memory is better than
 * that of the parent. */
void xw_memory_copy(void)
{
	struct share *all = shares;

	shares = NULL;
	if (all && back(0, UINTPTR_MAX) != 0)
		for (; all; all = all->next)
			xw_munmap((void *)all->start, all->end - all->start);
	if (arena >= 0)
		close(arena);
	arena = -1;
}
