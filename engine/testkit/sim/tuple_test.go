package sim

import (
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// talk returns a stream of a few bytes each way, always from the same port of host A.
func talk(s *scenario, no int, noTimestamps bool) *streamConn {
	cfg := streamConfig{totalA: 3000, totalB: 5000, abortA: -1, port: 40000, maxRead: 4000}
	cfg.tcpA.NoTimestamps = noTimestamps
	return newStream(s, cfg, s.hosts[0], s.hosts[1], no)
}

// TestSameTuple repeatedly opens and closes a connection between the same ports, each time while the previous one is
// still in TIME-WAIT at the server, which closed first (RFC 6191; RFC 9293, 3.10.7.4).
func TestSameTuple(t *testing.T) {
	for _, noTimestamps := range []bool{false, true} {
		s := quietScenario(t, 1, 1500, impair.Config{Delay: ms})
		var c, last *streamConn
		listenStreams(s, s.hosts[1], 0, 4, tcp.CookiesUnderPressure, func(uint16) *streamConn {
			return c
		})
		for i := range 20 {
			c = talk(s, i, noTimestamps)
			c.cfg.totalA = 0 // so that the server's FIN may arrive first
			c.a.total = 0
			c.a.shut = true // the client closes after it was notified of the end
			if err := c.dial(); err != nil {
				t.Fatal(err)
			}
			at := s.world.Now()
			closed := false
			err := s.world.Run(at.Add(10*tick.Second), func() bool {
				if c.a.eof && !closed {
					closed = true
					c.a.s.Shutdown(true, false)
				}
				return c.a.ended
			})
			if err != nil {
				t.Fatal(err)
			}
			if last != nil && !last.b.ended {
				t.Errorf("the server's consumer got no event for the end of connection %d", i-1)
			}
			last = c
			if !c.a.ended || c.a.err != nil || c.a.read != 5000 {
				t.Fatalf("connection %d, without timestamps %v: ended %v, error %v, %d bytes", i,
					noTimestamps, c.a.ended, c.a.err, c.a.read)
			}
			if n := s.hosts[1].Stack().Len(); n != 1 {
				t.Fatalf("the server has %d connections, want the one in TIME-WAIT", n)
			}
			if d := s.world.Now().Sub(at); d > 100*ms {
				t.Errorf("connection %d took %d ms", i, d/ms)
			}
		}
	}
}

// TestRebootSameTuple: the client reboots and dials from the same port, while the server still considers the old
// connection established. The server's challenge ACK draws a RST, and the next SYN opens a new connection (RFC 9293,
// 3.5.1; RFC 5961, 4).
func TestRebootSameTuple(t *testing.T) {
	s := quietScenario(t, 1, 1500, impair.Config{Delay: ms})
	var c *streamConn
	listenStreams(s, s.hosts[1], 0, 4, tcp.CookiesUnderPressure, func(uint16) *streamConn {
		return c
	})
	old := talk(s, 0, false)
	old.a.shut, old.b.shut = true, true // stays open
	c = old
	if err := c.dial(); err != nil {
		t.Fatal(err)
	}
	if err := s.world.Run(Epoch.Add(100*ms), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.hosts[0].Reboot(); err != nil {
		t.Fatal(err)
	}
	c = talk(s, 1, false)
	if err := c.dial(); err != nil {
		t.Fatal(err)
	}
	if err := s.world.Run(Epoch.Add(5*tick.Second), func() bool {
		return c.a.read == 5000 && c.b.read == 3000
	}); err != nil {
		t.Fatal(err)
	}
	if c.a.read != 5000 || c.b.read != 3000 {
		t.Errorf("the new connection has %d and %d bytes, error %v", c.a.read, c.b.read, c.a.err)
	}
	if err := old.b.s.Err(); err != tcp.CauseReset {
		t.Errorf("the server's old connection: %v, want %v", err, tcp.CauseReset)
	}
}
