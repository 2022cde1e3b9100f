/* Asynchronous events: each context has a list of events, and an eventfd that counts them. */
#include "objects.h"

void xw_async(struct context *c, struct ibv_async_event *e)
{
	struct async *a = calloc(1, sizeof *a);
	uint64_t one = 1;

	if (!a)
		return;
	a->event = *e;
	LOCKED(&c->v.context.mutex) {
		*c->tail = a;
		c->tail = &a->next;
	}
	(void)!write(c->v.context.async_fd, &one, sizeof one);
}

void xw_events_init(struct events *e)
{
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
}

void xw_events_ack(struct events *e, unsigned n)
{
	GUARD(&e->lock);
	e->acked += n;
	pthread_cond_signal(&e->changed);
}

void xw_events_end(struct events *e)
{
	GUARD(&e->lock);
	while (e->acked != e->delivered)
		pthread_cond_wait(&e->changed, &e->lock);
}

/* counts_of returns the counts of the object of an event, or NULL if the event belongs to none. */
static struct events *counts_of(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR: return &container_of(e->element.cq, struct cq, ib)->async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: return &container_of(e->element.qp, struct qp, ib)->async;
	case IBV_EVENT_SRQ_LIMIT_REACHED: return &container_of(e->element.srq, struct srq, ib)->async;
	default: return NULL;
	}
}

/* take returns the oldest event, or NULL. Its object cannot be destroyed before the event is acknowledged. */
static struct async *take(struct context *c)
{
	GUARD(&c->v.context.mutex);
	struct async *a = c->events;
	if (a && !(c->events = a->next))
		c->tail = &c->events;
	struct events *counts = a ? counts_of(&a->event) : NULL;
	if (counts)
		LOCKED(&counts->lock)
			counts->delivered++;
	return a;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct async *a;
	uint64_t n;

	do
		if (read(context->async_fd, &n, sizeof n) != sizeof n)
			return -1;
	while (!(a = take(xw_context(context)))); /* none left: the object of the event was destroyed at this moment */
	*event = a->event;
	free(a);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct events *counts = counts_of(event);

	if (counts)
		xw_events_ack(counts, 1);
}

void xw_async_end(struct ibv_context *context, struct ibv_async_event *e)
{
	struct context *c = xw_context(context);
	struct async **p, *a;

	LOCKED(&context->mutex) {
		for (p = &c->events; (a = *p);)
			if (counts_of(&a->event) == counts_of(e)) {
				*p = a->next;
				xw_uncount(context->async_fd, false); /* if a reader has taken this count, it finds no event */
				free(a);
			} else {
				p = &a->next;
			}
		c->tail = p;
	}
	xw_events_end(counts_of(e));
}
