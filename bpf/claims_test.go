package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

func load(t testing.TB, opts Options) *Steering {
	t.Helper()
	needs.XDP(t)
	s, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// wantError checks that err is not nil, that it is target unless that is nil, and that its text contains says and the
// prefix of the package.
func wantError(t *testing.T, err, target error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("%v is not %v", err, target)
	}
	for _, s := range append(says, "bpf: ") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// TestKeys compares keys with the layout of maps.h, written out by hand.
func TestKeys(t *testing.T) {
	flow := makeFlowKey(0x123, netip.MustParseAddrPort("192.0.2.1:4420"),
		netip.MustParseAddrPort("198.51.100.9:40000"))
	wantFlow := flowKey{
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 9,
		40000 >> 8, 40000 & 0xff, 4420 >> 8, 4420 & 0xff,
	}
	binary.NativeEndian.PutUint32(wantFlow[36:], 0x123)
	if d := cmp.Diff(wantFlow, flow); d != "" {
		t.Error(d)
	}
	listener := makeListenerKey(0x123, netip.MustParseAddrPort("[fe80::1%eth0]:4420"))
	wantListener := listenerKey{0xfe, 0x80, 15: 1, 16: 4420 >> 8, 17: 4420 & 0xff}
	binary.NativeEndian.PutUint16(wantListener[18:], 0x123)
	if d := cmp.Diff(wantListener, listener); d != "" {
		t.Error(d)
	}
}

func TestClaimTwiceAndRelease(t *testing.T) {
	s := load(t, Options{})
	local, remote := at(local4, 1), at(remote4, 2)
	mapped := at(netip.AddrFrom16(local4.As16()), 1)
	for _, c := range []struct {
		name        string
		add, remove func() error
		again       func() error // the same claim in another form
	}{
		{"flow", func() error {
			return s.AddFlow(local, remote)
		}, func() error { return s.RemoveFlow(local, remote) },
			func() error { return s.AddFlow(mapped, remote) }},
		{"listener", func() error {
			return s.AddListener(local)
		}, func() error { return s.RemoveListener(local) },
			func() error { return s.AddListener(mapped) }},
		{"listener any", func() error {
			return s.AddListener(at(netip.Addr{}, 9))
		}, func() error { return s.RemoveListener(at(netip.Addr{}, 9)) },
			func() error { return s.AddListener(at(netip.IPv6Unspecified(), 9)) }},
		{"SA", func() error {
			return s.AddSA(local.Addr(), remote.Addr(), 7)
		}, func() error { return s.RemoveSA(local.Addr(), remote.Addr(), 7) },
			func() error { return s.AddSA(mapped.Addr(), remote.Addr(), 7) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, c.remove(), ErrNotClaimed)
			for range 2 {
				if err := c.add(); err != nil {
					t.Fatal(err)
				}
				wantError(t, c.add(), ErrClaimed)
				wantError(t, c.again(), ErrClaimed)
				if err := c.remove(); err != nil {
					t.Fatal(err)
				}
			}
			wantError(t, c.remove(), ErrNotClaimed)
		})
	}
}

// TestListenerAllOrNothing: if one family of a wildcard listener is taken, the other is not claimed.
func TestListenerAllOrNothing(t *testing.T) {
	s := load(t, Options{})
	any4, any6 := at(netip.IPv4Unspecified(), 9), at(netip.IPv6Unspecified(), 9)
	if err := s.AddListener(any6); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.AddListener(at(netip.Addr{}, 9)), ErrClaimed, "*:9")
	if err := s.AddListener(any4); err != nil {
		t.Error("a part of the refused claim stayed:", err)
	}
}

func TestFullMapsRefuse(t *testing.T) {
	s := load(t, Options{MaxFlows: 2, MaxListeners: 1})
	for port := uint16(1); port <= 2; port++ {
		if err := s.AddFlow(at(local4, port), at(remote4, 1)); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, s.AddFlow(at(local4, 3), at(remote4, 1)), ErrFull, "2 entries", "Options.MaxFlows")
	if err := s.RemoveFlow(at(local4, 1), at(remote4, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.AddFlow(at(local4, 3), at(remote4, 1)); err != nil {
		t.Error("no room after a removal:", err)
	}
	wantError(t, s.AddListener(at(netip.Addr{}, 9)), ErrFull, "Options.MaxListeners")
	if err := s.AddListener(at(local6, 9)); err != nil {
		t.Error("the refused claim left an entry:", err)
	}
}

func TestBadArguments(t *testing.T) {
	s := load(t, Options{MaxQueues: 4})
	for name, err := range map[string]error{
		"flow without port":     s.AddFlow(at(local4, 0), at(remote4, 1)),
		"flow without address":  s.AddFlow(at(netip.Addr{}, 1), at(remote4, 1)),
		"flow from any":         s.AddFlow(at(local4, 1), at(netip.IPv4Unspecified(), 1)),
		"flow of two families":  s.AddFlow(at(local4, 1), at(remote6, 1)),
		"SA without SPI":        s.AddSA(local4, remote4, 0),
		"SA without address":    s.AddSA(local4, netip.Addr{}, 7),
		"SA to any address":     s.AddSA(netip.IPv4Unspecified(), remote4, 7),
		"SA of two families":    s.AddSA(local4, remote6, 7),
		"removal without port":  s.RemoveFlow(at(local4, 0), at(remote4, 1)),
		"listener without port": s.AddListener(at(local4, 0)),
		"listener removal":      s.RemoveListener(at(local4, 0)),
	} {
		t.Run(name, func(t *testing.T) { wantError(t, err, nil) })
	}
	wantError(t, s.SetSocket(4, 0), nil, "0 to 3", "MaxQueues")
	wantError(t, s.SetSocket(-1, 0), nil, "0 to 3")
	wantError(t, s.SetSocket(0, -1), nil, "descriptor")
	wantError(t, s.RemoveSocket(4), nil, "0 to 3")
	if _, err := s.NoSocketDrops(4); err == nil {
		t.Error("NoSocketDrops accepts a queue beyond MaxQueues")
	}
	if _, err := Load(Options{MaxFlows: -1}); err == nil ||
		!strings.Contains(err.Error(), "MaxFlows") {
		t.Error("Load with MaxFlows -1:", err)
	}
}

func TestSocketOfQueue(t *testing.T) {
	b := newBench(t, false)
	seg := frame(ether4(), ip4(local4, protoTCP), flowSegment())

	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wantError(t, b.SetSocket(0, int(file.Fd())), nil, "not an AF_XDP socket")
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(udp)
	wantError(t, b.SetSocket(0, udp), unix.EOPNOTSUPP, "not an AF_XDP socket")
	if err := b.RemoveSocket(0); err != nil {
		t.Error("removal from an empty queue:", err)
	}

	b.expect(seg, DropNoSocket)
	if err := b.SetSocket(1, newXSK(t)); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, DropNoSocket) // the other queue's socket does not serve this one
	first := openXSK(t)
	if err := b.SetSocket(0, first); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, Flow)
	unix.Close(first) // the kernel removes a closed socket from the map
	b.expect(seg, DropNoSocket)
	for range 2 { // the second replaces the first
		if err := b.SetSocket(0, newXSK(t)); err != nil {
			t.Fatal(err)
		}
		b.expect(seg, Flow)
	}
	if err := b.RemoveSocket(0); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, DropNoSocket)
}

// TestClaimsComeAndGo: claims take effect at once, and an exact flow takes precedence over a listener.
func TestClaimsComeAndGo(t *testing.T) {
	b := newBench(t, true)
	local, remote := at(local4, listenPort), at(remote4, 33333)
	seg := frame(ether4(), ip4(local4, protoTCP), segmentTo(listenPort))
	b.expect(seg, Listener)
	if err := b.AddFlow(local, remote); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, Flow)
	if err := b.RemoveListener(local); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, Flow)
	if err := b.RemoveFlow(local, remote); err != nil {
		t.Fatal(err)
	}
	b.expect(seg, PassNoMatch)
}

func TestOutcomeNames(t *testing.T) {
	seen := map[string]bool{}
	for o := range Outcome(NumOutcomes) {
		name := o.String()
		if name == "" || seen[name] {
			t.Errorf("outcome %d is called %q", uint32(o), name)
		}
		seen[name] = true
		if o.Dropped() != strings.HasPrefix(name, "drop_") || o.Steered() == (o.Dropped() ||
			strings.HasPrefix(name, "pass_")) {
			t.Errorf("%s: steered %v, dropped %v", name, o.Steered(), o.Dropped())
		}
	}
	if got, want := Outcome(NumOutcomes).String(), "outcome(21)"; got != want {
		t.Errorf("beyond the last: %q, want %q", got, want)
	}
}

// TestCloseVLAN releases all claims at once, and lets them be claimed again.
func TestCloseVLAN(t *testing.T) {
	s := load(t, Options{})
	at := netip.MustParseAddrPort("192.0.2.1:4420")
	claim := func() (err error) {
		for port := range uint16(300) {
			err = errors.Join(err, s.AddFlow(at, netip.AddrPortFrom(at.Addr().Next(), 1+port)))
			err = errors.Join(err, s.AddSA(at.Addr(), at.Addr().Next(), uint32(1+port)))
		}
		any := netip.AddrPortFrom(netip.Addr{}, 1)
		return errors.Join(err, s.AddListener(at), s.AddListener(any))
	}
	for range 2 {
		if err := claim(); err != nil {
			t.Fatal(err)
		}
		wantError(t, s.AddListener(at), ErrClaimed)
		if err := s.VLAN.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
