package sim

import (
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// quietScenario is two hosts and a path without faults, for tests of one behaviour.
func quietScenario(t *testing.T, seed uint64, mtu int, path impair.Config) *scenario {
	t.Helper()
	s := &scenario{seed: seed, world: NewWorld(seed), judge: newJudge()}
	for i := range 2 {
		s.paths = append(s.paths, newPath(path, seed+uint64(i), mtu))
		h, err := s.world.AddHost(HostConfig{
			Name: string(rune('A' + i)), MTU: mtu, Up: s.paths[i], RxFrames: 2048, TxSlots: 512,
			Addrs: []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}),
				{0: 0xfd, 15: byte(1 + i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.hosts = append(s.hosts, h)
	}
	s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
		if d == Out {
			s.judge.see(frame, now)
		}
	}
	s.world.Check = s.check
	return s
}

// TestGracefulClose: both sides are notified without an error once both FINs are acknowledged, although the side that
// closed first stays in TIME-WAIT for longer than any timeout of the connection.
//
//req:rfc5041-2.3-6 rfc5041-6.2.1-2
func TestGracefulClose(t *testing.T) {
	s := quietScenario(t, 1, 1500, impair.Config{Delay: ms})
	c := newRDMA(s, rdmaConfig{
		ini: startup.Config{IRD: 8, ORD: 8, RTRs: startup.RTRRead}, window: 1 << 20,
		depth: 8, ops: 5, maxOp: 5000, tcpA: tcp.Config{}, tcpB: tcp.Config{},
	}, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, c)
	c.start()
	if err := s.world.Run(Epoch.Add(2*tick.Second), c.over); err != nil {
		t.Fatal(err)
	}
	if !c.over() || c.a.err != nil || c.b.err != nil {
		t.Fatalf("after %v ns: closed %d and %d times, errors %v and %v", s.world.Since(),
			c.a.closed,
			c.b.closed, c.a.err, c.b.err)
	}
	if n := s.hosts[0].Stack().Len(); n != 1 {
		t.Errorf("%d connections left at the side that closed first, want the one in TIME-WAIT", n)
	}
	if err := s.world.Run(Epoch.Add(100*tick.Second), nil); err != nil {
		t.Fatal(err)
	}
	if n := s.hosts[0].Stack().Len(); n != 0 {
		t.Errorf("%d connections left after TIME-WAIT", n)
	}
	if err := c.verdict(); err != nil {
		t.Error(err)
	}
}
