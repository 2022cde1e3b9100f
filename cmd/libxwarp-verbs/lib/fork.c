/* Fork. A child has none of its parent's objects. It gets copies of the pages that its parent registered, since
 * otherwise both would write to the same heap. It may open the device itself. The forking thread waits until the
 * copies are made. */
#include "cm.h"

#include <fcntl.h>

static int made[2] = {-1, -1}; /* a pipe; its end in the child closes when the copies are made or the child exits */

static void before(void)
{
	if (xw_memory_freeze() && pipe2(made, O_CLOEXEC) != 0)
		made[0] = made[1] = -1;
}

static void close_pipe(int i)
{
	if (made[i] >= 0)
		close(made[i]);
	made[i] = -1;
}

static void in_parent(void)
{
	char b;

	close_pipe(1);
	while (made[0] >= 0 && read(made[0], &b, 1) < 0 && errno == EINTR)
		;
	close_pipe(0);
	xw_memory_thaw();
}

static void in_child(void)
{
	xw_memory_copy(); /* before anything is written */
	close_pipe(0);
	close_pipe(1);
	xw_memory_thaw();
	xw_sessions_forked();
	xw_devices_forked();
	xw_bounce_forked();
	xw_cqs_forked();
	xw_cm_forked();
	xw_cm_contexts_forked();
}

UNCHECKED __attribute__((constructor)) static void watch(void) { pthread_atfork(before, in_parent, in_child); }
