/* Programs that look for the libraries themselves: dlopen of libibverbs or librdmacm, then dlsym or dlvsym. What dlsym finds
 * by such a handle is the library's own, whatever is preloaded. So the handle that they get is of libxwarp-dlopen.so, which
 * has nothing but this library, libibverbs and librdmacm among its needs: dlsym looks there in this order. dlvsym takes the
 * names of a library without versions for any version. */
#include "base.h"

#include <dlfcn.h>

#define OURS "libxwarp-dlopen.so"

typedef void *opener(const char *file, int mode);

static bool begins(const char *name, const char *library)
{
	size_t n = strlen(library);

	return strncmp(name, library, n) == 0 && (name[n] == 0 || name[n] == '.');
}

/* is_rdma says whether a file is one of the two libraries, with any version and in any directory. */
static bool is_rdma(const char *file)
{
	const char *slash = file ? strrchr(file, '/') : NULL, *name = slash ? slash + 1 : file;

	return name && (begins(name, "libibverbs.so") || begins(name, "librdmacm.so"));
}

/* open_ours opens libxwarp-dlopen.so, which lies beside this library. */
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
	void *h, *theirs = next(file, mode); /* ours needs the one that the program names */

	if (!theirs && mode & RTLD_NOLOAD)
		return NULL;
	h = open_ours(next, mode & ~RTLD_NOLOAD);
	if (!h && theirs && xw_first_time(__func__))
		xw_warn("the program that opens %s finds no device of xwarpd: %s (the file belongs beside libxwarp-verbs.so)", file,
			dlerror());
	if (theirs)
		dlclose(theirs);
	return h;
}

/* dlopen searches where its caller says ($ORIGIN, RUNPATH), and finds the caller by the return address: jump to it. */
EXPORT void *dlopen(const char *file, int mode)
{
	static opener *_Atomic found;
	opener *next = found;

	if (!next)
		found = next = (opener *)dlsym(RTLD_NEXT, "dlopen");
	if (is_rdma(file)) {
		void *h = open_rdma(next, file, mode);
		if (h)
			return h;
	}
	return next(file, mode);
}
