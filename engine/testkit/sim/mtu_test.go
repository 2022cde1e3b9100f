package sim

import (
	"fmt"
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestMTUDrop: the path MTU falls from 9000 to 1500 in mid-transfer, with or without an ICMP error. The transfer must
// complete; only the FPDUs framed for the old MTU may lose their alignment.
//
//req:rfc5044-3-2 rfc5041-2.3-2
func TestMTUDrop(t *testing.T) {
	for _, told := range []bool{true, false} {
		for v6 := range 2 {
			t.Run(fmt.Sprintf("told %v v%d", told, 4+2*v6), func(t *testing.T) {
				mtuDrop(t, told, v6)
			})
		}
	}
}

func mtuDrop(t *testing.T, told bool, v6 int) {
	path := impair.Config{Delay: 200 * us, Rate: 1e9, Queue: 1 << 20}
	s := quietScenario(t, 3, 9000, path)
	s.cuts, s.judge.cuts = true, true
	cfg := tcp.Config{ProbeMTU: true, RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
	c := newRDMA(s, rdmaConfig{
		ini:    startup.Config{IRD: 8, ORD: 8, RTRs: startup.RTRRead, Markers: true},
		rsp:    startup.Config{Markers: true},
		window: 1 << 20, depth: 64, ops: 60, maxOp: 200_000, tcpA: cfg, tcpB: cfg, v6: v6,
	}, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, c)
	c.start()
	var queued int // unacknowledged bytes framed for the old MTU
	var before mpa.ReceiverStats
	var at tick.Duration
	s.world.After(8*ms, func() {
		narrow := path
		narrow.MTU, narrow.MTUReply = 1500, told
		s.paths[0].set(narrow)
		conn := c.a.iw.Endpoint.Conn()
		queued, before, at = conn.SndNxt().Diff(conn.SndUna()), c.b.iw.Stats(), s.world.Since()
	})
	if err := s.world.Run(Epoch.Add(120*tick.Second), c.over); err != nil {
		t.Fatal(err)
	}
	if err := c.verdict(); err != nil {
		t.Fatal(err)
	}
	k, st := c.a.iw.Endpoint.Conn().Counters(), c.b.iw.Stats()
	records := queued/1024 + 1
	split := int(k.SplitEMSS + k.SplitRetransmit)
	t.Logf("MTU fell at %.1f ms with %d bytes in flight; done at %.1f ms; %d segments split, %d "+
		"unaligned and %d partial offers, EMSS %d, PTB accepted %d, black holes %d",
		float64(at)/1e6, queued, float64(s.world.Since())/1e6, split, st.Unaligned-before.Unaligned,
		st.Partial-before.Partial, c.a.iw.Endpoint.EMSS(), k.PTBAccepted, k.BlackHoles)
	switch {
	case queued == 0:
		t.Error("no data was in flight when the MTU fell: the test proves nothing")
	case c.a.iw.Endpoint.EMSS() > 1460:
		t.Errorf("EMSS is %d, the path takes 1500", c.a.iw.Endpoint.EMSS())
	case split == 0:
		t.Error("no segment was counted as split, although FPDUs of 9000 bytes were queued")
	case split > 8*records:
		t.Errorf("%d segments split for %d bytes that were queued", split, queued)
	case told && k.PTBAccepted == 0:
		t.Error("no packet-too-big was accepted")
	case !told && k.BlackHoles == 0:
		t.Error("no black hole was found")
	case k.SplitWindow > 0:
		t.Errorf("%d splits for the peer's window", k.SplitWindow)
	}
	if most := 8 * tick.Second; s.world.Since() > most {
		t.Errorf("the transfer took %d ms, want at most %d", s.world.Since()/ms, most/ms)
	}
	if k.BlackHoles > 1 {
		t.Errorf("%d black holes found, there is one", k.BlackHoles)
	}
}
