/* A library built with this header pauses after each unlock by the program's first thread, so that the library's own
 * thread can free or change data that the first one still uses. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

static inline int unlock_and_pause(pthread_mutex_t *m)
{
	int error = pthread_mutex_unlock(m);

	if (gettid() == getpid())
		usleep(2000);
	return error;
}
#define pthread_mutex_unlock(m) unlock_and_pause(m)
