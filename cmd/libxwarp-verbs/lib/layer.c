/* Verbs as a layer of the session: events of the daemon become asynchronous events. */
#include "objects.h"

static void on_event(struct session *s, struct json e)
{
	struct json name = json_get(e, "event");
	uint32_t handle;

	if (json_is(name, "qp_down") && json_u32(e, "qp", &handle))
		xw_qp_down(s, handle, e);
	else if (json_is(name, "qp_gone") && json_u32(e, "qp", &handle))
		xw_qp_gone(s, handle);
	else if (json_is(name, "srq_limit") && json_u32(e, "srq", &handle))
		xw_srq_limit(s, handle);
	else if (json_is(name, "cq_err") && json_u32(e, "cq", &handle))
		xw_cq_overrun(s, handle);
}

static void on_orphaned(struct session *s)
{
	LOCKED(&s->lock)
		for (struct context *x = s->contexts; x; x = x->next)
			xw_async(x, &(struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}

const struct layer xw_verbs_layer = {.event = on_event, .lost = xw_qps_lost, .orphaned = on_orphaned};
