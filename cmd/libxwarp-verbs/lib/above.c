/* Events of a session for the layers above it. */
#include "cm.h"

void xw_on_event(struct session *s, struct json e)
{
	struct json name = json_get(e, "event");
	uint64_t qp, srq, cq;

	if (json_number(json_get(e, "qp"), &qp)) {
		if (json_is(name, "qp_down")) {
			xw_qp_down(s, (uint32_t)qp, e);
			xw_cm_down(s, (uint32_t)qp);
		} else if (json_is(name, "qp_gone")) {
			xw_qp_gone(s, (uint32_t)qp);
		}
	} else if (json_is(name, "srq_limit") && json_number(json_get(e, "srq"), &srq)) {
		xw_srq_limit(s, (uint32_t)srq);
	} else if (json_is(name, "cq_err") && json_number(json_get(e, "cq"), &cq)) {
		xw_cq_overrun(s, (uint32_t)cq);
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
