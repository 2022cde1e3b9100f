/* Completion channels: an epoll descriptor over the queues' own channels, so that programs can poll it like any other. */
#include "objects.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *ch = calloc(1, sizeof *ch);

	if (!ch)
		return xw_null(ENOMEM);
	ch->ib.context = context;
	ch->ib.fd = epoll_create1(EPOLL_CLOEXEC);
	if (ch->ib.fd < 0) {
		free(ch);
		return NULL;
	}
	pthread_mutex_init(&ch->lock, NULL);
	return &ch->ib;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ib)
{
	struct channel *ch = container_of(ib, struct channel, ib);

	LOCKED(&ch->lock)
		if (ib->refcnt)
			return EBUSY;
	close(ib->fd);
	free(ch);
	return 0;
}

/* signal_of consumes one signal of a queue's channel. After the daemon is gone, the end of the channel counts as a
 * signal, so that the program polls the queue and finds the flushed requests. */
static bool signal_of(struct cq *cq)
{
	char b;
	ssize_t n = recv(cq->signal, &b, 1, MSG_DONTWAIT);

	if (n == 0 && !xw_session(cq->ib.context)->dead)
		return false;
	if (n == 0)
		epoll_ctl(cq->ib.channel->fd, EPOLL_CTL_DEL, cq->signal, NULL);
	return n >= 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ib, struct ibv_cq **out, void **cq_context)
{
	struct channel *ch = container_of(ib, struct channel, ib);
	struct epoll_event e;

	for (;;) {
		int flags = fcntl(ib->fd, F_GETFL);
		int n = epoll_wait(ib->fd, &e, 1, flags >= 0 && flags & O_NONBLOCK ? 0 : -1);
		if (n < 0)
			return -1;
		if (n == 0)
			return xw_fail(EAGAIN);
		LOCKED(&ch->lock) {
			/* Another thread may have consumed the signal, or destroyed the queue, in the meantime. */
			n = epoll_wait(ib->fd, &e, 1, 0);
			struct cq *cq = e.data.ptr;
			if (n == 1 && signal_of(cq)) {
				cq->completions.delivered++;
				*out = &cq->ib;
				*cq_context = cq->ib.cq_context;
				return 0;
			}
		}
		if (n == 1) /* the queue's channel ended before the session noticed, or the queue is being destroyed */
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *ib, unsigned n)
{
	xw_events_ack(&container_of(ib, struct cq, ib)->completions, n);
}
