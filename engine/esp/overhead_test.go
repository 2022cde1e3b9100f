package esp

import "testing"

// TestInnerMTU compares with figures computed by hand from the RFCs: TCP's header takes 20 bytes, and 12 for
// timestamps.
func TestInnerMTU(t *testing.T) {
	for _, c := range []struct {
		mtu  int
		v6   bool
		s    Shape
		emss int // with timestamps
	}{
		{1500, false, Shape{}, 1414},
		{1500, true, Shape{}, 1394},
		{1280, true, Shape{}, 1174},
		{3346, false, Shape{}, 3258},
		{9000, false, Shape{}, 8914},
		{9000, true, Shape{}, 8894},
		{1500, false, Shape{Mode: Tunnel}, 1394},
		{1500, true, Shape{Mode: Tunnel, OuterV6: true}, 1354},
		{1500, false, Shape{Mode: Tunnel, OuterV6: true}, 1374},
		{9000, true, Shape{Mode: Tunnel, OuterV6: true}, 8854},
	} {
		header := 20 + 32
		if c.v6 {
			header = 40 + 32
		}
		if got := c.s.InnerMTU(c.mtu, c.v6) - header; got != c.emss {
			t.Errorf("MTU %d, %+v: EMSS %d, want %d", c.mtu, c, got, c.emss)
		}
	}
}

func TestInnerMTUIsTheLongestThatFits(t *testing.T) {
	for mtu := 100; mtu < 9100; mtu++ {
		for _, v6 := range []bool{false, true} {
			for _, s := range []Shape{{}, {Mode: Tunnel}, {Mode: Tunnel, OuterV6: true}} {
				n := s.InnerMTU(mtu, v6)
				if s.SealedLen(n, v6) > mtu || s.SealedLen(n+1, v6) <= mtu {
					t.Fatalf("%+v, IPv6 %v: MTU %d: %d bytes become %d, one more %d", s, v6, mtu, n,
						s.SealedLen(n, v6), s.SealedLen(n+1, v6))
				}
			}
		}
	}
}

// TestDecapsulateECN checks the table of RFC 6040, figure 4.
func TestDecapsulateECN(t *testing.T) {
	const not, ect1, ect0, ce, drop = 0, 1, 2, 3, 4
	table := map[uint8][4]uint8{ // by the inner field: with outer Not-ECT, ECT(0), ECT(1), CE
		not:  {not, not, not, drop},
		ect0: {ect0, ect0, ect1, ce},
		ect1: {ect1, ect1, ect1, ce},
		ce:   {ce, ce, ce, ce},
	}
	for inner, row := range table {
		for i, outer := range []uint8{not, ect0, ect1, ce} {
			got, dropped := DecapsulateECN(outer, inner)
			if dropped != (row[i] == drop) || !dropped && got != row[i] {
				t.Errorf("outer %d, inner %d: %d, drop %v", outer, inner, got, dropped)
			}
		}
	}
}
