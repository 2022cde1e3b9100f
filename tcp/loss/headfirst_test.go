package loss

import "testing"

// TestHeadGoesFirst: after a timeout lost records are retransmitted in the order of the stream, also if a later one was
// lost twice before, the second time as a tail loss probe. A peer without buffer space can keep only the head.
func TestHeadGoesFirst(t *testing.T) {
	cfg := conf(RACK)
	cfg.NoFRTO = true
	b := newBench(t, cfg, 100*ms)
	b.send(0, 6)
	b.expire(ExpiredTLP)
	b.s.NoNewData(b.now)
	b.want("probe", b.resend(), []int{5})
	b.expire(ExpiredRTO)
	b.want("the head", b.resend(), []int{0})
	b.wait(100 * ms)
	b.ack(1)
	b.want("the next two", b.resend(), []int{1, 2})
	b.expire(ExpiredRTO)
	b.want("the head", b.resend(), []int{1})
	b.wait(100 * ms)
	b.ack(2)
	b.want("the next two", b.resend(), []int{2, 3})
}
