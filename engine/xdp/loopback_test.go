package xdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// second is an address of host A on an interface other than eth0.
const second = "198.51.100.1"

// ownHost opens a device on eth0 of host A, and one on own0, another interface of A with the address second.
func ownHost(t *testing.T, edit func(*xdp.Config)) (first, other *xdp.Device,
	tn *topo.Net) {
	t.Helper()
	first, _, tn = xdpPair(t, topo.Options{OffloadsB: topo.NoOffloads}, edit)
	if err := tn.A.AddVeth("own0", "own1", netip.MustParseAddr(second)); err != nil {
		t.Fatal(err)
	}
	cfg := xdp.Config{Interface: "own0"}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if edit != nil {
		edit(&cfg)
	}
	if err := tn.A.Do(func() (err error) {
		other, err = xdp.Open(cfg)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return first, other, tn
}

// linkLocal adds a link-local IPv6 address to an interface and returns it.
func linkLocal(t *testing.T, h *topo.Host, name string) (a netip.Addr) {
	t.Helper()
	l, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParseAddr("fe80::7174")
	err = h.Netlink().AddrAdd(l, &netlink.Addr{Flags: syscall.IFA_F_NODAD,
		IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(64, 128)}})
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// TestOwnAddresses connects two ends on one host, on one device and on two, at each kind of local address. Listeners
// are on that address or on any address. The devices must not send any frame.
func TestOwnAddresses(t *testing.T) {
	first, other, tn := ownHost(t, nil)
	for _, tc := range []struct {
		name   string
		listen string // address of the listener; empty: at
		at     netip.Addr
	}{
		{name: "IPv4", at: tn.A.Addr4.Addr()},
		{name: "IPv6", at: tn.A.Addr6.Addr()},
		{name: "link-local", at: linkLocal(t, tn.A, "eth0")},
		{name: "another interface's", at: netip.MustParseAddr(second)},
		{name: "127.0.0.1", at: netip.MustParseAddr("127.0.0.1")},
		{name: "[::1]", at: netip.IPv6Loopback()},
		{name: "0.0.0.0", listen: "0.0.0.0", at: tn.A.Addr4.Addr()},
		{name: "0.0.0.0 by 127.0.0.1", listen: "0.0.0.0", at: netip.MustParseAddr("127.0.0.1")},
		{name: "[::]", listen: "::", at: tn.A.Addr6.Addr()},
		{name: "[::] by [::1]", listen: "::", at: netip.IPv6Loopback()},
	} {
		for name, devs := range map[string][2]*xdp.Device{
			"one device": {first, first}, "two devices": {first, other},
		} {
			if tc.at.IsLinkLocalUnicast() && devs[1] == other {
				continue // for the other device it is an address on own0
			}
			t.Run(tc.name+", "+name, func(t *testing.T) {
				const size = 1 << 20
				a, b := verbstest.New(t, devs[0], size), verbstest.New(t, devs[1], size)
				listen := tc.at
				if tc.listen != "" {
					listen = netip.MustParseAddr(tc.listen)
				}
				connectAt(t, a, b, listen, tc.at)
				verbstest.Exercise(t, a, b)
				if err := errors.Join(a.QP.Disconnect(), a.QP.Close(), b.QP.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, d := range []*xdp.Device{first, other} {
		s, err := d.Stats()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range s.Queues {
			if q.Ring.TxPackets > 0 {
				t.Errorf("queue %d sent %d frames", q.Queue, q.Ring.TxPackets)
			}
		}
	}
}

// connectAt makes b listen at one address and a dial another.
func connectAt(t *testing.T, a, b *verbstest.End, listen, dial netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := b.Dev.Listen(netip.AddrPortFrom(listen, 0), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.QP, nil)
		}
		accepted <- err
	}()
	at := netip.AddrPortFrom(dial, l.Addr().Port())
	if err := a.Dev.Dial(ctx, at, a.QP, verbs.DialConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	bare := func(p netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(p.Addr().WithZone(""), p.Port())
	}
	if la, ra := a.QP.LocalAddr(), a.QP.RemoteAddr(); bare(ra) != at ||
		la.Addr() != ra.Addr() || b.QP.LocalAddr() != ra || b.QP.RemoteAddr() != la {
		t.Errorf("addresses: %v to %v, %v to %v; the peer is to be %v", la, ra, b.QP.LocalAddr(),
			b.QP.RemoteAddr(), at)
	}
}

// TestOwnAddressKeepsTheContract: the errors of verbs on local connections are those of connections to remote hosts.
func TestOwnAddressKeepsTheContract(t *testing.T) {
	for _, at := range []string{"192.0.2.1", "::1"} {
		t.Run(at, func(t *testing.T) {
			first, other, _ := ownHost(t, nil)
			verbstest.Errors(t, first, other, netip.MustParseAddr(at))
		})
	}
}

// TestOwnAddressSRQ: local connections and a connection from another host share a receive queue.
func TestOwnAddressSRQ(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, nil)
	const size = 64
	b := verbstest.New(t, da, 8*size)
	srq, err := da.CreateSRQ(verbs.SRQConfig{PD: b.PD, Depth: 8, MaxSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := srq.PostRecv(&verbs.RecvWR{ID: uint64(i),
			SGL: []verbs.SGE{b.MR.SGE(i*size, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, dev := range []*xdp.Device{da, db, da} {
		a, end := verbstest.New(t, dev, size), *b
		if end.Endpoint, err = verbs.NewEndpoint(da, verbs.EndpointConfig{QPConfig: verbs.QPConfig{
			PD: b.PD, SendCQ: b.CQ, RecvCQ: b.CQ, SRQ: srq}}); err != nil {
			t.Fatal(err)
		}
		verbstest.Connect(t, a, &end, netip.AddrPortFrom(tn.A.Addr4.Addr(), 0))
		want := fmt.Appendf(nil, "message %d", i)
		copy(a.Mem, want)
		a.Post(verbs.SendWR{Op: verbs.WRSend, SGL: []verbs.SGE{a.MR.SGE(0, len(want))}})
		a.Wait()
		if c := b.Wait(); c.QP != end.QP || !bytes.Equal(b.Mem[c.ID*size:][:len(want)], want) {
			t.Errorf("message %d: %+v, %q", i, c, b.Mem[c.ID*size:][:len(want)])
		}
	}
}

// TestOwnAddressRefuses: without a listener, connections to addresses of this host fail within a second. They also fail
// if the consumer rejects them, and if the device does not allow the peer's address. A connection from 127.0.0.1 to
// another host, and a byte stream to an address of this host, fail with EINVAL.
func TestOwnAddressRefuses(t *testing.T) {
	d, _, tn := ownHost(t, func(c *xdp.Config) {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	dial := func(at netip.AddrPort, cfg verbs.DialConfig) error {
		return d.Dial(t.Context(), at, verbstest.New(t, d, 4096).QP, cfg)
	}
	for _, at := range []string{"192.0.2.1:7174", "[2001:db8:77::1]:7174", "127.0.0.1:7174",
		"[::1]:7174"} {
		begin := time.Now()
		err := dial(netip.MustParseAddrPort(at), verbs.DialConfig{})
		if took := time.Since(begin); !errors.Is(err, syscall.ECONNREFUSED) || took > time.Second {
			t.Errorf("no listener at %s: %v after %v", at, err, took)
		}
	}
	l, err := d.Listen(netip.MustParseAddrPort("0.0.0.0:7174"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			r.Reject([]byte("no"))
		}
	}()
	err = dial(netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174), verbs.DialConfig{})
	if r, ok := errors.AsType[*verbs.Rejection](err); !ok || string(r.PrivateData) != "no" {
		t.Errorf("a consumer that rejects: %v", err)
	}
	if err := dial(netip.MustParseAddrPort("127.0.0.1:7174"), verbs.DialConfig{}); err == nil ||
		errors.Is(err, verbs.ErrRejected) {
		t.Errorf("127.0.0.1, which the device does not allow: %v", err)
	}
	if err := dial(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174), verbs.DialConfig{
		Local: netip.MustParseAddrPort("127.0.0.1:0")}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("from 127.0.0.1 to another host: %v", err)
	}
	_, err = d.DialStream(t.Context(), netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174),
		xdp.StreamConfig{})
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a byte stream to the own address: %v", err)
	}
}

// TestLocalListenerIsClosedToOthers: the kernel socket of a listener does not serve other hosts: neither through
// another interface than the device's, nor after the device's program is detached.
func TestLocalListenerIsClosedToOthers(t *testing.T) {
	first, other, tn := ownHost(t, nil)
	l, err := other.Listen(netip.MustParseAddrPort("0.0.0.0:7174"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174) // through eth0, whose device does not listen
	if reaches(tn, at) {
		t.Error("the listener of own0 answers on eth0")
	}
	if err := tn.A.Do(func() error {
		c, err := net.Dial("tcp", at.String())
		if err == nil {
			c.Close()
		}
		return err
	}); err != nil {
		t.Errorf("from the host itself: %v", err)
	}
	l6, err := first.Listen(netip.AddrPortFrom(tn.A.Addr6.Addr(), 7175), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l6.Close()
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []netip.AddrPort{at, l6.Addr()} {
		if reaches(tn, at) {
			t.Errorf("the kernel answers other hosts at %v", at)
		}
	}
}
