package portmapper

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"xwarp/engine/testkit/havoc"
)

var (
	listener4 = netip.MustParseAddrPort("10.77.0.1:7174")
	client4   = netip.MustParseAddrPort("10.77.0.10:41234")
	listener6 = netip.MustParseAddrPort("[fd77::1]:7174")
	client6   = netip.MustParseAddrPort("[fd77::10]:41234")
)

func messages() (list []Message) {
	for t := Request; t <= Reject; t++ {
		m := Message{Type: t, PMTime: 7, Handle: 0x0102030405060708, Accepting: listener4,
			Connecting: client4}
		six := m
		six.Accepting, six.Connecting = listener6, client6
		if t == Request {
			m.Mapped = netip.AddrPortFrom(client4.Addr(), 99)
			six.Mapped = netip.AddrPortFrom(client6.Addr(), 99)
		}
		list = append(list, m, six)
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	for _, m := range messages() {
		b := m.Append(nil)
		if got, err := Parse(b); err != nil || got != m {
			t.Errorf("%+v was parsed as %+v, %v", m, got, err)
		}
		for n := range len(b) + 2 {
			if n == len(b) {
				continue
			}
			if got, err := Parse(append(b, 0)[:n]); !errors.Is(err, ErrMessage) {
				t.Errorf("%d of %d bytes of %v: %+v, %v", n, len(b), m.Type, got, err)
			}
		}
		for bit := range 6 { // flips a bit of the version or the IP version, not of the type
			b := bytes.Clone(b)
			b[0] ^= []byte{0x80, 0x40, 8, 4, 2, 1}[bit]
			got, err := Parse(b)
			if err == nil && got.Accepting.Addr().Is6() == m.Accepting.Addr().Is6() {
				t.Errorf("first byte %#x: %+v", b[0], got)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.Append(nil))
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		again, err := Parse(m.Append(nil))
		if err != nil || again != m {
			t.Fatalf("%x is %+v, then %+v, %v", b, m, again, err)
		}
	})
}
