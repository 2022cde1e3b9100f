package sim

import (
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/engine/bytestream"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestHopOrder: connections that wait for their next hop resume in the order in which they were started.
func TestHopOrder(t *testing.T) {
	s := quietScenario(t, 1, 1500, impair.Config{})
	a, b := s.hosts[0], s.hosts[1]
	a.cfg.HopDelay = ms
	var got []uint16
	s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
		if h == a && d == Out {
			got = append(got, uint16(frame[34])<<8|uint16(frame[35]))
		}
	}
	for port := uint16(1000); port < 1040; port++ {
		tu := tcp.Tuple{Local: a.Addr(0), Remote: b.Addr(0), LocalPort: port, RemotePort: 1}
		if _, err := a.Stack().Connect(tu, &tcp.Config{}, bytestream.New(bytestream.Config{},
			func(*bytestream.Stream) {}), s.world.Now()); err != nil {
			t.Fatal(err)
		}
	}
	a.Wake()
	if err := s.world.Run(Epoch.Add(2*ms), nil); err != nil {
		t.Fatal(err)
	}
	if len(got) != 40 {
		t.Fatalf("%d frames, want a SYN of each of 40 connections", len(got))
	}
	for i, port := range got {
		if port != 1000+uint16(i) {
			t.Fatalf("the SYNs left in the order %v", got)
		}
	}
}
