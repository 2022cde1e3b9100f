package loss

import "testing"

// TestNewReno checks RFC 6582, 3.2: recovery after three duplicate acknowledgements, retransmission after a partial
// acknowledgement, and no second recovery after duplicates that acknowledge nothing beyond recover. Window updates and
// segments with data are not duplicates.
//
//req:rfc5681-3.2-3 rfc5681-3.2-7 rfc5681-3.2-8 rfc5681-3.2-10 rfc5681-3.2-11 rfc8985-4-1
func TestNewReno(t *testing.T) {
	b := newBench(t, conf(NoSACK), 100*ms)
	b.send(0, 10) // 0 and 4 are lost
	b.wait(100 * ms)
	b.ack(0)
	b.want("limited transmit 1", b.fresh(), 1)
	b.ack(0)
	b.want("limited transmit 2", b.fresh(), 1)
	b.want("window unchanged", b.s.Cwnd(), 10000)
	b.ack(0)
	b.want("state", b.s.State(), Recovery)
	b.want("ssthresh", b.s.Ssthresh(), 5000)
	b.want("head", b.resend(), []int{0})
	for range 5 {
		b.ack(0)
	}
	b.wait(100 * ms)
	b.ack(4)
	b.want("partial", b.resend(), []int{4})
	b.want("state", b.s.State(), Recovery)
	b.wait(100 * ms)
	nxt := b.s.Nxt().Diff(b.base) / b.size
	b.ack(nxt)
	b.want("state", b.s.State(), Open)
	b.fresh()
	for range 3 {
		b.ack(nxt)
	}
	b.want("old duplicates", b.s.State(), Disorder)
	// A window update is not a duplicate acknowledgement, nor is a segment with data.
	d := b.s.dups
	b.input(Ack{Ack: b.s.Una(), WindowChanged: true})
	b.input(Ack{Ack: b.s.Una(), HasData: true})
	b.want("duplicates", b.s.dups, d)
}

// TestDuplicate checks RFC 5681, 2: an acknowledgement of nothing new is a duplicate if data is outstanding, and if it
// carries neither data nor a changed window.
//
//req:rfc6675-6-1
func TestDuplicate(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		b := newBench(t, conf(m), 100*ms)
		b.want("of nothing", b.ack(0).DupAck, false)
		b.send(0, 2)
		b.want("of what is outstanding", b.ack(0).DupAck, true)
		b.want("with bytes", b.input(Ack{Ack: b.s.Una(), HasData: true}).DupAck, false)
		b.want("with a window", b.input(Ack{Ack: b.s.Una(), WindowChanged: true}).DupAck, false)
		b.want("of news", b.ack(1).DupAck, false)
		b.want("of the last", b.ack(1).DupAck, true)
		b.ack(2)
		b.want("of all", b.ack(2).DupAck, false)
	}
}

// TestDuplicatesCounted: without SACK, a duplicate acknowledgement counts one segment as delivered. A later cumulative
// acknowledgement counts the rest of its bytes.
func TestDuplicatesCounted(t *testing.T) {
	for _, c := range []struct {
		what            string
		sent, dups      int // segments; duplicate acknowledgements
		ack             int // bytes
		left, delivered int // duplicates; bytes
	}{
		{"all", 4, 3, 4000, 0, 1000},
		{"the hole and one of two", 4, 2, 2000, 1, 1000},
		{"the hole alone, and one of the rest came twice", 2, 1, 1000, 0, 1000},
		{"part of the hole", 4, 1, 500, 1, 500},
		{"the hole and part of the next", 4, 1, 1500, 1, 1500},
	} {
		b := newBench(t, conf(NoSACK), 100*ms)
		b.send(0, c.sent)
		b.wait(100 * ms)
		for range c.dups {
			b.want(c.what+": duplicate", b.ack(0).Delivered, 1000)
		}
		r := b.input(Ack{Ack: b.base.Add(c.ack)})
		b.want(c.what+": duplicates left", b.s.dups, c.left)
		b.want(c.what+": delivered", r.Delivered, c.delivered)
	}
}
