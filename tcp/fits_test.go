package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

// TestSACKFits: a segment with data carries SACK blocks only if data and options together stay within the MSS.
func TestSACKFits(t *testing.T) {
	for _, stamps := range []bool{true, false} {
		opts := []opt{mss(1000), sackOK()}
		if stamps {
			opts = append(opts, ts(1, 0))
		}
		with := 0
		for n := 900; n <= 1000; n++ {
			p := newPeer(t, tcp.Config{NoTimestamps: !stamps})
			p.open(opts...)
			for hole := range 5 {
				p.in(fA, 101+200*hole, 1, 100, opts[2:]...)
			}
			p.out()
			p.src.sizes = []int{min(n, p.c.EMSS())}
			var o tcp.Out
			for p.c.Poll(p.now, &p.src, &o) {
				if o.Payload.Len()+o.Opt.Len() > 1000 {
					t.Fatalf("%d bytes and %d of options in a segment, the MSS is 1000",
						o.Payload.Len(), o.Opt.Len())
				}
				if o.Payload.Len() > 0 && o.Opt.Present&wire.HasSACK != 0 {
					with++
				}
			}
		}
		if with == 0 {
			t.Errorf("timestamps %v: never with bytes", stamps)
		}
	}
}
