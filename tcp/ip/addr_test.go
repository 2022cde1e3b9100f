package ip

import "testing"

// TestValidTCP: neither end of a connection may have a multicast, broadcast or unspecified address (RFC 1122, 3.2.1.3
// and 4.2.3.10).
//
//req:rfc9293-MUST-63 rfc9293-MUST-57
func TestValidTCP(t *testing.T) {
	group4, group6 := AddrFrom4([4]byte{224, 0, 0, 1}), Addr{0: 0xff, 1: 2, 15: 1}
	for _, a := range []Addr{{}, AddrFrom4([4]byte{}), group4, group6,
		AddrFrom4([4]byte{239, 255, 255, 255}), AddrFrom4([4]byte{255, 255, 255, 255})} {
		for _, h := range []Header{{Src: a, Dst: v4b}, {Src: v4a, Dst: a}} {
			if err := h.ValidTCP(); err != ErrSource {
				t.Errorf("%v to %v: %v", h.Src, h.Dst, err)
			}
		}
	}
	for _, a := range []Addr{v4a, v6a, AddrFrom4([4]byte{223, 255, 255, 255}),
		AddrFrom4([4]byte{240, 0, 0, 0}), AddrFrom4([4]byte{255, 255, 255, 254}),
		{0: 0xfe, 15: 1}} {
		h := Header{Src: a, Dst: a}
		if err := h.ValidTCP(); err != nil {
			t.Errorf("%v: %v", a, err)
		}
	}
}

// TestMACString: two hexadecimal digits for each byte.
func TestMACString(t *testing.T) {
	if got := (MAC{0x02, 0, 0x5e, 0x10, 0xff, 0x0a}).String(); got != "02:00:5e:10:ff:0a" {
		t.Error(got)
	}
}
