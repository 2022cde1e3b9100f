package stack

import (
	"encoding/binary"
	"testing"

	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// requests is a Resolver that counts.
type requests int

func (r *requests) Request(ip.Addr) { *r++ }
func (r *requests) Forget(ip.Addr)  {}

// TestIdleHop: connections one after the other to the same host wait for its address only once, and it is confirmed now and then.
func TestIdleHop(t *testing.T) {
	var asked requests
	s := &Stack{hops: map[ip.Addr]*hop{}, cfg: Config{Resolver: &asked}}
	dst, mac := ip.AddrFrom4([4]byte{192, 0, 2, 1}), [6]byte{2, 0, 0, 0, 0, 1}
	now := tick.Time(tick.Second)
	connection := func(dst ip.Addr, want requests, known bool) *Endpoint {
		t.Helper()
		e := &Endpoint{stack: s}
		e.setHop(s.hopFor(dst, now))
		if asked != want || e.hop.known != known {
			t.Fatalf("asked %d times, known %t; want %d, %t", asked, e.hop.known, want, known)
		}
		return e
	}
	connection(dst, 1, false).setHop(nil)
	if len(s.hops) != 0 {
		t.Fatal("a hop without an address and without a connection is kept")
	}
	e := connection(dst, 2, false)
	s.SetHop(dst, mac, true)
	e.setHop(nil)
	connection(dst, 2, true).setHop(nil)
	mac[5] = 2 // the neighbour table changed while nobody used the hop
	s.SetHop(dst, mac, true)
	now = now.Add(HopRetry)
	if e = connection(dst, 3, true); e.hop.mac != mac {
		t.Errorf("address % x, want % x", e.hop.mac, mac)
	}
	for i := range uint32(2 * MaxIdleHops) {
		var other [4]byte
		binary.BigEndian.PutUint32(other[:], 10<<24+i)
		o := &Endpoint{stack: s}
		o.setHop(s.hopFor(ip.AddrFrom4(other), now))
		s.SetHop(ip.AddrFrom4(other), mac, true)
		o.setHop(nil)
	}
	if n := len(s.hops); n != MaxIdleHops || s.hops[dst] != e.hop {
		t.Errorf("%d hops are kept, want %d and the one in use", n, MaxIdleHops)
	}
}
