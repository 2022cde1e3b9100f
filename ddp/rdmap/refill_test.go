package rdmap

import (
	"testing"

	"xwarp/ddp"
)

// TestRefill: a message that finds no receive calls Config.Refill. It is an error only if Refill posts none.
func TestRefill(t *testing.T) {
	asked, more := 0, 2
	b := newHost(t, 2)
	b.open(func(c *Config) {
		c.Refill = func() {
			asked++
			if more > 0 {
				more--
				b.recv(uint64(asked))
			}
		}
	}, Params{Version: ddp.IETF})
	a := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	for range 2 {
		a.send(SendWR{Op: WRSend})
		if err := b.push(nil, a.pull(1500)); err != nil {
			t.Fatal(err)
		}
	}
	wantCQEs(t, b, "1 recv SUCCESS", "2 recv SUCCESS")
	a.send(SendWR{Op: WRSend})
	wantError(t, b.push(nil, a.pull(1500)), ddp.CauseNoBuffer)
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

// TestSRQRefill: a shared queue calls Refill only if it is empty, because receives that wait elsewhere were posted
// later.
func TestSRQRefill(t *testing.T) {
	asked, more := 0, 2
	to := newHost(t, 2)
	s, err := NewSRQ(SRQConfig{Table: to.table, PD: to.pd, Depth: 4, MaxSGE: 1,
		Refill: func(s *SRQ) {
			asked++
			if more > 0 {
				more--
				if err := s.PostRecv(&RecvWR{ID: uint64(10 + asked)}); err != nil {
					t.Error(err)
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PostRecv(&RecvWR{ID: 1}); err != nil {
		t.Fatal(err)
	}
	b := to.open(func(c *Config) { c.SRQ = s }, Params{Version: ddp.IETF})
	a := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	for want := range 3 {
		a.send(SendWR{Op: WRSend})
		if err := b.push(nil, a.pull(1500)); err != nil || asked != want {
			t.Fatalf("message %d: %v, asked %d times", want, err, asked)
		}
	}
	wantCQEs(t, b, "1 recv SUCCESS", "11 recv SUCCESS", "12 recv SUCCESS")
	a.send(SendWR{Op: WRSend})
	wantError(t, b.push(nil, a.pull(1500)), ddp.CauseNoBuffer)
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
