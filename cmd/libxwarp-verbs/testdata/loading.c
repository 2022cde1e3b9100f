/* One thread opens a library whose constructor waits until another thread has accessed files: neither may wait for
 * the loader. Compiled as that library with -DLIBRARY; otherwise PROGRAM LIBRARY. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef LIBRARY

extern int constructing, looked;

__attribute__((constructor)) static void construct(void)
{
	__atomic_store_n(&constructing, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; !__atomic_load_n(&looked, __ATOMIC_SEQ_CST); i++) {
		if (i == 1000) {
			puts("the other thread waits for the loader");
			exit(1);
		}
		usleep(10000);
	}
}

#else

int constructing, looked;

static void *load(void *path)
{
	if (!dlopen(path, RTLD_NOW)) {
		puts(dlerror());
		exit(1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;
	struct stat st;

	if (argc != 2 || pthread_create(&t, NULL, load, argv[1]) != 0)
		return 2;
	while (!__atomic_load_n(&constructing, __ATOMIC_SEQ_CST))
		usleep(1000);
	if (access("/", R_OK) != 0 || stat("/", &st) != 0 || chdir("/") != 0)
		return 1;
	__atomic_store_n(&looked, 1, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
	puts("all is well");
	return 0;
}

#endif
