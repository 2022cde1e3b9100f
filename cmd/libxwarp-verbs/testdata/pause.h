/* A library built with this header pauses after each unlock of the program's first thread, so that its own thread
 * can free or change data that is still in use. */
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
