/* Files in /sys/class/infiniband, for programs that look for devices there. The daemon provides such files in a
 * directory next to its control socket, with a subdirectory per style. Functions of the C library redirect paths
 * there; the descriptors and directories that they return are those of the kernel.
 *
 * Programs (UCX, Mooncake) use a device only if /dev/infiniband has a character device of its name that they can
 * read and write. Such a path is redirected to /dev/full, which exists in every container and rejects writes. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* otherwise fcntl.h defines open itself */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "objects.h"

#define SYSFS "/sys/class/infiniband"
#define DEV "/dev/infiniband/xwarp_"

/* redirect reports whether a path must be redirected, and stores the new path in to. It uses no lock and no heap,
 * because allocators open files. */
__attribute__((noinline)) static bool redirect(const char *path, char to[PATH_MAX])
{
	const char *rest = path ? path + strlen(SYSFS) : NULL, *socket;

	if (path && strncmp(path, DEV, strlen(DEV)) == 0)
		return snprintf(to, PATH_MAX, "/dev/full") > 0;
	if (!path || strncmp(path, SYSFS, strlen(SYSFS)) != 0 || (*rest && *rest != '/'))
		return false;
	socket = secure_getenv("XWARP_SOCKET");
	int n = snprintf(to, PATH_MAX, "%s" XW_SYSFS_SUFFIX "/%s/class/infiniband%s",
			 socket && *socket ? socket : XW_DEFAULT_PATH, xw_roce() ? "roce" : "iwarp", rest);
	return n < PATH_MAX;
}

/* REDIRECT defines a function that redirects its argument path. */
#define REDIRECT(type, failure, name, params, args)                          \
	FIND(type, name, params)                                             \
	EXPORT type name params;                                             \
	EXPORT type name params                                              \
	{                                                                    \
		char to[PATH_MAX];                                           \
		NEXT(type, failure, name, params);                           \
		if (redirect(path, to))                                         \
			path = to;                                           \
		return next args;                                            \
	}

REDIRECT(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
REDIRECT(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
REDIRECT(DIR *, NULL, opendir, (const char *path), (path))
REDIRECT(int, -1, chdir, (const char *path), (path))
REDIRECT(int, -1, access, (const char *path, int mode), (path, mode))
REDIRECT(int, -1, eaccess, (const char *path, int mode), (path, mode))
REDIRECT(int, -1, euidaccess, (const char *path, int mode), (path, mode))
REDIRECT(int, -1, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags))
REDIRECT(int, -1, stat, (const char *path, struct stat *st), (path, st))
REDIRECT(int, -1, stat64, (const char *path, struct stat64 *st), (path, st))
REDIRECT(int, -1, lstat, (const char *path, struct stat *st), (path, st))
REDIRECT(int, -1, lstat64, (const char *path, struct stat64 *st), (path, st))
REDIRECT(int, -1, fstatat, (int at, const char *path, struct stat *st, int flags), (at, path, st, flags))
REDIRECT(int, -1, fstatat64, (int at, const char *path, struct stat64 *st, int flags), (at, path, st, flags))
REDIRECT(int, -1, statx, (int at, const char *path, int flags, unsigned mask, struct statx *st), (at, path, flags, mask, st))
/* __xstat and the like are for programs built with a glibc before 2.33, names with _2 and _chk for _FORTIFY_SOURCE. */
REDIRECT(int, -1, __xstat, (int version, const char *path, struct stat *st), (version, path, st))
REDIRECT(int, -1, __xstat64, (int version, const char *path, struct stat64 *st), (version, path, st))
REDIRECT(int, -1, __lxstat, (int version, const char *path, struct stat *st), (version, path, st))
REDIRECT(int, -1, __lxstat64, (int version, const char *path, struct stat64 *st), (version, path, st))
REDIRECT(int, -1, __open_2, (const char *path, int flags), (path, flags))
REDIRECT(int, -1, __open64_2, (const char *path, int flags), (path, flags))
REDIRECT(int, -1, __openat_2, (int at, const char *path, int flags), (at, path, flags))
REDIRECT(int, -1, __openat64_2, (int at, const char *path, int flags), (at, path, flags))
REDIRECT(ssize_t, -1, readlink, (const char *path, char *link, size_t room), (path, link, room))
REDIRECT(ssize_t, -1, readlinkat, (int at, const char *path, char *link, size_t room), (at, path, link, room))
REDIRECT(ssize_t, -1, getxattr, (const char *path, const char *name, void *value, size_t room), (path, name, value, room))
REDIRECT(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *value, size_t room), (path, name, value, room))
REDIRECT(char *, NULL, realpath, (const char *path, char *resolved), (path, resolved))
REDIRECT(char *, NULL, __realpath_chk, (const char *path, char *resolved, size_t room), (path, resolved, room))

typedef int filter(const struct dirent *);
typedef int order(const struct dirent **, const struct dirent **);
typedef int filter64(const struct dirent64 *);
typedef int order64(const struct dirent64 **, const struct dirent64 **);
REDIRECT(int, -1, scandir, (const char *path, struct dirent ***list, filter *f, order *o), (path, list, f, o))
REDIRECT(int, -1, scandir64, (const char *path, struct dirent64 ***list, filter64 *f, order64 *o), (path, list, f, o))

/* OPEN is REDIRECT for functions with a mode argument that exists only if a file may be created. */
#define OPEN(name, params, call)                                             \
	FIND(int, name, params)                                              \
	EXPORT int name params;                                              \
	EXPORT int name params                                               \
	{                                                                    \
		char to[PATH_MAX];                                           \
		mode_t mode = 0;                                             \
		NEXT(int, -1, name, params);                                 \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {   \
			va_list more;                                        \
			va_start(more, flags);                               \
			mode = va_arg(more, mode_t);                         \
			va_end(more);                                        \
		}                                                            \
		if (redirect(path, to))                                         \
			path = to;                                           \
		return next call;                                            \
	}

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
