/* Programs that dlopen libibverbs or librdmacm, and then call dlsym or dlvsym. With the handle of such a library
 * dlsym finds its own symbols, even if others are preloaded. So dlopen returns a handle of libxwarp-dlopen.so
 * instead, whose only dependencies are this library, libibverbs and librdmacm; dlsym searches them in this order.
 * dlvsym accepts the symbols of a library without versions for any version.
 *
 * A plugin opened with RTLD_DEEPBIND finds the symbols of its dependencies before those of preloaded libraries. So
 * dlopen drops this flag for plugins that use one of the two libraries, such as the RDMA module of Valkey. */
#include "base.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define OURS "libxwarp-dlopen.so"

typedef void *opener(const char *file, int mode);

static bool begins(const char *name, const char *library)
{
	size_t n = strlen(library);

	return strncmp(name, library, n) == 0 && (name[n] == 0 || name[n] == '.');
}

/* is_rdma reports whether a file is one of the two libraries, with any version and in any directory. */
static bool is_rdma(const char *file)
{
	const char *slash = file ? strrchr(file, '/') : NULL, *name = slash ? slash + 1 : file;

	return name && (begins(name, "libibverbs.so") || begins(name, "librdmacm.so"));
}

/* open_ours opens libxwarp-dlopen.so, which is next to this library. */
static void *open_ours(opener *next, int mode)
{
	char path[4096];
	Dl_info self;
	const char *slash;

	if (dladdr(&xw_first_time, &self) == 0 || !(slash = strrchr(self.dli_fname, '/')) ||
	    (size_t)snprintf(path, sizeof path, "%.*s/" OURS, (int)(slash - self.dli_fname), self.dli_fname) >= sizeof path)
		return NULL;
	return next(path, mode);
}

__attribute__((noinline)) static void *open_rdma(opener *next, const char *file, int mode)
{
	void *h, *theirs = next(file, mode); /* libxwarp-dlopen.so needs the library that the program names */

	if (!theirs && mode & RTLD_NOLOAD)
		return NULL;
	h = open_ours(next, mode & ~RTLD_NOLOAD);
	if (!h && theirs && xw_first_time(__func__))
		xw_warn("programs that dlopen %s find no xwarp device: %s (the file must be next to libxwarp-verbs.so)", file,
			dlerror());
	if (theirs)
		dlclose(theirs);
	return h;
}

/* uses_rdma reports whether a file contains the name of one of the two libraries, as a dependency or as a string. It
 * is false for a name without a directory, which only ld.so can find. */
__attribute__((noinline)) static bool uses_rdma(const char *file)
{
	FD fd = file && strchr(file, '/') ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	void *p = MAP_FAILED;
	bool found = false;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
		p = xw_mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p != MAP_FAILED) {
		size_t n = (size_t)st.st_size;
		found = memmem(p, n, "libibverbs.so", strlen("libibverbs.so")) ||
			memmem(p, n, "librdmacm.so", strlen("librdmacm.so"));
		xw_munmap(p, n);
	}
	return found;
}

FIND(void *, dlopen, (const char *, int))

/* The next dlopen searches relative to its caller ($ORIGIN, RUNPATH), which it determines from the return address.
 * So this function ends with a jump to it, not with a call. */
EXPORT void *dlopen(const char *file, int mode)
{
	NEXT(void *, NULL, dlopen, (const char *, int));
	if (is_rdma(file)) {
		void *h = open_rdma(next, file, mode);
		if (h)
			return h;
	}
	if (mode & RTLD_DEEPBIND && uses_rdma(file))
		mode &= ~RTLD_DEEPBIND;
	return next(file, mode);
}
