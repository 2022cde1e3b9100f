package sim

import (
	"testing"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// TestLinkDown: the link is down for a while. The worker must not spin, and waiting frames must leave soon afterwards.
func TestLinkDown(t *testing.T) {
	s := &scenario{world: NewWorld(1), judge: newJudge()}
	for i := range 2 {
		h, err := s.world.AddHost(HostConfig{Name: string(rune('A' + i)), RxFrames: 2048,
			Addrs: []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})}})
		if err != nil {
			t.Fatal(err)
		}
		s.hosts = append(s.hosts, h)
	}
	a := s.hosts[0]
	a.kernel.SetState(ring.StateDown)
	s.world.After(500*ms, func() { a.kernel.SetState(ring.StateOK) })
	k := newBulks(s, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}, 1<<20).start(1000)
	done := func() bool { return k.read == 1000 }
	if err := s.world.Run(Epoch.Add(tick.Second), done); err != nil {
		t.Fatal(err)
	}
	if n := a.Stats().IdleTimers; n > 100 {
		t.Errorf("%d wake-ups while the link was down", n)
	}
	if got := s.world.Since(); got > 530*ms {
		t.Errorf("done after %d ms, want at most 30 ms after the link came back", got/ms)
	}
}

// TestLinkDownFull: more frames wait for the link than the transmit ring holds. The worker must not spin then either.
func TestLinkDownFull(t *testing.T) {
	s := &scenario{world: NewWorld(1), judge: newJudge()}
	for i := range 2 {
		h, err := s.world.AddHost(HostConfig{Name: string(rune('A' + i)), RxFrames: 2048,
			TxSlots: 4,
			Addrs:   []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})}})
		if err != nil {
			t.Fatal(err)
		}
		s.hosts = append(s.hosts, h)
	}
	a := s.hosts[0]
	const total = 100_000
	k := newBulks(s, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}, 1<<20).start(total)
	if err := s.world.Run(Epoch.Add(tick.Second), func() bool { return k.wrote > 0 }); err != nil {
		t.Fatal(err)
	}
	a.kernel.SetState(ring.StateDown)
	s.world.After(100*ms, func() { a.kernel.SetState(ring.StateOK) })
	if err := s.world.Run(Epoch.Add(10*tick.Second), func() bool {
		return k.read == total
	}); err != nil {
		t.Fatal(err)
	}
	if k.read != total {
		t.Errorf("%d of %d bytes", k.read, total)
	}
	if n := a.Stats().Steps; n > 500 {
		t.Errorf("%d steps", n)
	}
}
