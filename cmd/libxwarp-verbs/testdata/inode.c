/* A file on another file system with the inode number of the arena: fork must not change its pages. The number is
 * set explicitly, since collisions are rare. */
#include "../lib/memory.c"

#include <stdlib.h>
#include <sys/wait.h>

#define CHECK(condition) do if (!(condition)) { fprintf(stderr, "%s is false\n", #condition); _exit(1); } while (0)

enum { SIZE = 1 << 16 };

int main(int argc, char **argv)
{
	char *region = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1, status;
	struct share *s;
	struct stat st;

	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fstat(fd, &st) == 0);
	char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(region != MAP_FAILED && shared != MAP_FAILED);
	memset(region, 7, SIZE);
	CHECK(xw_share(region, SIZE, true, &s) == 0 && arena_device != st.st_dev);
	strcpy(shared, "asked");
	arena_inode = st.st_ino;
	CHECK(xw_memory_freeze());
	pid_t child = fork();
	if (child == 0) {
		xw_memory_copy();
		CHECK(strcmp(shared, "asked") == 0);
		strcpy(shared, "answered");
		_exit(0);
	}
	xw_memory_thaw();
	CHECK(waitpid(child, &status, 0) == child && status == 0 && strcmp(shared, "answered") == 0);
	return 0;
}
