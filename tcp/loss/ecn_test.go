package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
)

// TestECN: one reduction per window (RFC 3168, 6.1.2), less than for a loss (RFC 8511).
func TestECN(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	cwr := 0
	for i := 1; i <= 10; i++ {
		if b.input(Ack{Ack: b.seg(i).Start, ECE: true}).CWR {
			cwr++
		}
		b.fresh()
	}
	b.want("reductions", cwr, 1)
	b.want("ssthresh", b.s.Ssthresh(), 8000)
	b.want("window", b.s.Cwnd(), 8000)
	b.wait(100 * ms)
	// An echo in the acknowledgement of all outstanding bytes reduces the window, too. Otherwise a peer that
	// acknowledges each segment at once would never get CWR, and would echo for ever.
	b.want("next window", b.input(Ack{Ack: b.s.Nxt(), ECE: true}).CWR, true)
	b.want("state", b.s.State(), Open)
	w := b.s.Cwnd()
	b.want("the same echo again", b.input(Ack{Ack: b.s.Nxt(), ECE: true}).CWR, false)
	b.want("window", b.s.Cwnd(), w)
}

// TestECNOfLittle: an echo reduces the window even if only one byte is in flight. An echo while nothing is in flight,
// as in a segment with the peer's data, does not. Linux checks the bytes in flight, too.
func TestECNOfLittle(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.want("nothing", b.input(Ack{Ack: b.s.Una(), HasData: true, ECE: true}).CWR, false)
	b.s.Sent(seq.Of(b.s.Nxt(), 1), Data, false, b.now)
	b.want("a byte", b.input(Ack{Ack: b.s.Una(), ECE: true}).CWR, true)
}

// TestAccECN: reports of marked bytes reduce the window once per round trip, and DCTCP's alpha follows their share.
func TestAccECN(t *testing.T) {
	cfg := conf(RACK)
	cfg.CC.Algorithm = cc.DCTCP
	b := newBench(t, cfg, 100*ms)
	for range 40 {
		b.fresh()
		end := b.s.Nxt()
		b.wait(100 * ms)
		n := b.s.count.ECNReductions
		for b.s.Una() != end {
			b.input(Ack{Ack: b.s.Una().Add(1000), CEBytes: 250})
		}
		if got := b.s.count.ECNReductions - n; got > 1 {
			t.Fatalf("%d reductions in one window", got)
		}
	}
	if a := b.s.Info(b.now).CC.Alpha; a < 65536/5 || a > 65536/3 {
		t.Errorf("alpha %d with a quarter of the bytes marked", a)
	}
}
