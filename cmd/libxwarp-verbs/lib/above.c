/* Events of a session for the layers above it. */
#include "cm.h"

void xw_on_event(struct session *s, struct json e)
{
	struct json name = json_get(e, "event");
	uint32_t handle;

	if (json_u32(e, "qp", &handle)) {
		if (json_is(name, "qp_down")) {
			xw_qp_down(s, handle, e);
			xw_cm_down(s, handle);
		} else if (json_is(name, "qp_gone")) {
			xw_qp_gone(s, handle);
		}
	} else if (json_is(name, "srq_limit") && json_u32(e, "srq", &handle)) {
		xw_srq_limit(s, handle);
	} else if (json_is(name, "cq_err") && json_u32(e, "cq", &handle)) {
		xw_cq_overrun(s, handle);
	} else if (json_is(name, "stopping")) {
		xw_cm_gone(s); /* before the ends of connections, as when a NIC is removed */
	}
}

void xw_on_lost(struct session *s) { xw_qps_lost(s); }

void xw_on_orphaned(struct session *s)
{
	LOCKED(&s->lock)
		for (struct context *x = s->contexts; x; x = x->next)
			xw_async(x, &(struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
	xw_cm_gone(s);
}
