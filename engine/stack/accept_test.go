package stack

import (
	"errors"
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

var errDenied = errors.New("denied")

// fullTable is a Steering without room.
type fullTable struct{}

func (fullTable) AddFlow(*tcp.Tuple) error { return errDenied }
func (fullTable) RemoveFlow(*tcp.Tuple)    {}

// TestRefused: at the end of each handshake, the upper layer refuses the connection, or the steering has no room for
// it. The peer must be reset at once, with one RST. No connection may stay, half-open or not, no upper layer may be
// created, and the reason must be reported.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		denied  bool
		steer   Steering
		cookies tcp.CookieMode
	}{
		{"denied", true, nil, tcp.CookiesNever},
		{"denied, with cookies", true, nil, tcp.CookiesAlways},
		{"no room for the flow", false, fullTable{}, tcp.CookiesNever},
		{"no room for the flow, with cookies", false, fullTable{}, tcp.CookiesAlways},
	} {
		made := 0
		var told []error
		h := newHost(t, func(cfg *Config) { cfg.Steering = c.steer })
		l := h.listen(ListenConfig{
			Cookies: c.cookies,
			Accept: func(*tcp.Tuple) (Upper, error) {
				if c.denied {
					return nil, errDenied
				}
				made++
				return &endless{idle: true}, nil
			},
			Refused: func(_ *tcp.Tuple, err error) { told = append(told, err) },
		})
		const peers = 300 // more than a backlog
		for port := range uint16(peers) {
			ack, out := h.connect(tuple(v4(198, 51, 100, 9), 1000+port))
			if ack == nil {
				t.Fatalf("%s: SYN %d is not answered", c.name, port)
			}
			if len(out) != 1 || !flagsOf(out[0]).Has(wire.RST) {
				t.Fatalf("%s: the ACK is answered with % x", c.name, out)
			}
		}
		if made != 0 || h.s.Len() != 0 || l.both[0].Pending() != 0 || h.s.Stats().Refused != peers {
			t.Errorf("%s: %d layers, %d connections, %d half open, %+v", c.name, made, h.s.Len(),
				l.both[0].Pending(), h.s.Stats())
		}
		if len(told) != peers || slices.ContainsFunc(told, func(err error) bool {
			return !errors.Is(err, errDenied)
		}) {
			t.Errorf("%s: %d were told", c.name, len(told))
		}
		h.settle()
		if len(h.s.hops) != 0 {
			t.Errorf("%s: %d hops stay", c.name, len(h.s.hops))
		}
	}
}
