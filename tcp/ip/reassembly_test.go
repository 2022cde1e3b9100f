package ip

import (
	"testing"

	"xwarp/tcp/tick"
)

// TestReassemblyKey: in version 4 the protocol tells datagrams apart (RFC 791, 3.2), in version 6 it does not: the
// next headers of fragments may differ, the first one's counts (RFC 8200, 4.5).
func TestReassemblyKey(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, c := range []struct {
			name   string
			change func(*Header)
			whole  bool
		}{
			{"nothing", func(*Header) {}, true},
			{"source", func(h *Header) { h.Src[15]++ }, false},
			{"destination", func(h *Header) { h.Dst[15]++ }, false},
			{"identification", func(h *Header) { h.ID++ }, false},
			{"protocol", func(h *Header) { h.Proto = 17 }, v6},
		} {
			hs, ps := cut(v6, 1, make([]byte, 32), 16)
			var re Reassembler
			re.Init(4)
			re.Add(&hs[0], ps[0], 0)
			c.change(&hs[1])
			b := re.Add(&hs[1], ps[1], 0)
			if (b != nil) != c.whole || b != nil && hs[1].Proto != 6 {
				t.Errorf("version 6 %v, another %s: %d octets, protocol %d", v6, c.name, len(b),
					hs[1].Proto)
			}
			h := &hs[1]
			if b != nil && (h.Fragment || h.FragMore || h.FragOff != 0 || h.PayloadLen != 32) {
				t.Errorf("version 6 %v: the header of the datagram is %+v", v6, h)
			}
		}
	}
}

// TestReassemblyEviction: when there is no room the oldest datagram makes some, wherever it is.
func TestReassemblyEviction(t *testing.T) {
	var re Reassembler
	re.Init(3)
	now := tick.Time(0)
	add := func(id uint32, part int) bool {
		hs, ps := cut(false, id, make([]byte, 32), 16)
		now++
		return re.Add(&hs[part], ps[part], now) != nil
	}
	for id := range uint32(3) {
		add(id, 0)
	}
	if !add(0, 1) {
		t.Fatal("the first is not whole")
	}
	add(3, 0) // where the first was
	add(4, 0)
	if n := re.Counters().Evicted; n != 1 {
		t.Errorf("%d evicted", n)
	}
	for id := uint32(4); id > 0; id-- {
		if whole := add(id, 1); whole != (id > 1) {
			t.Errorf("%d whole: %v", id, whole)
		}
	}
}
