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

/* account refers to the event counters of an object. */
struct account {
	pthread_mutex_t *lock;
	pthread_cond_t *changed;
	unsigned *delivered;
	uint32_t *acked;
};

/* account_of reports whether the event belongs to an object, and returns its counters. */
static bool account_of(const struct ibv_async_event *e, struct account *a)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct cq *cq = container_of(e->element.cq, struct cq, ib);
		*a = (struct account){&cq->ib.mutex, &cq->ib.cond, &cq->async_delivered, &cq->ib.async_events_completed};
		return true;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct qp *q = container_of(e->element.qp, struct qp, ib);
		*a = (struct account){&q->ib.mutex, &q->ib.cond, &q->delivered, &q->ib.events_completed};
		return true;
	}
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct srq *q = container_of(e->element.srq, struct srq, ib);
		*a = (struct account){&q->ib.mutex, &q->ib.cond, &q->delivered, &q->ib.events_completed};
		return true;
	}
	default: return false;
	}
}

/* take returns the oldest event, or NULL. Its object cannot be destroyed before the event is acknowledged. */
static struct async *take(struct context *c)
{
	struct account account;

	GUARD(&c->v.context.mutex);
	struct async *a = c->events;
	if (a && !(c->events = a->next))
		c->tail = &c->events;
	if (a && account_of(&a->event, &account))
		LOCKED(account.lock)
			(*account.delivered)++;
	return a;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct async *a;
	uint64_t n;

	do
		if (read(context->async_fd, &n, sizeof n) != sizeof n)
			return -1;
	while (!(a = take(xw_context(context)))); /* its object was destroyed in this moment */
	*event = a->event;
	free(a);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct account a;

	if (!account_of(event, &a))
		return;
	GUARD(a.lock);
	(*a.acked)++;
	pthread_cond_signal(a.changed);
}

void xw_async_end(struct ibv_context *context, struct ibv_async_event *e)
{
	struct context *c = xw_context(context);
	struct async **p, *a;
	struct account other, account;

	if (!account_of(e, &account))
		return;
	LOCKED(&context->mutex) {
		for (p = &c->events; (a = *p);)
			if (account_of(&a->event, &other) && other.lock == account.lock) {
				*p = a->next;
				xw_uncount(context->async_fd, false); /* a reader that has taken it finds no event */
				free(a);
			} else {
				p = &a->next;
			}
		c->tail = p;
	}
	GUARD(account.lock);
	while (*account.acked != *account.delivered)
		pthread_cond_wait(account.changed, account.lock);
}
