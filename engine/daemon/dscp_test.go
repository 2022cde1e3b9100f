package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/client"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// classes returns the DSCPs and the hop limits of the TCP segments of connections with port that host sent, as gopacket
// decodes them. over reports whether a FIN or RST was seen in either direction.
func (w *wire) classes(host netip.Addr, port uint16) (dscps, hops []uint8, over bool) {
	w.mu.Lock()
	frames := w.frames
	w.mu.Unlock()
	d, h := map[uint8]bool{}, map[uint8]bool{}
	for _, b := range frames {
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
		t, _ := p.TransportLayer().(*layers.TCP)
		if t == nil || uint16(t.SrcPort) != port && uint16(t.DstPort) != port {
			continue
		}
		over = over || t.FIN || t.RST
		var tos, hop uint8
		switch i := p.NetworkLayer().(type) {
		case *layers.IPv4:
			tos, hop = i.TOS, i.TTL
		case *layers.IPv6:
			tos, hop = i.TrafficClass, i.HopLimit
		}
		src := p.NetworkLayer().NetworkFlow().Src().Raw()
		if from, _ := netip.AddrFromSlice(src); from == host {
			d[tos>>2], h[hop] = true, true
		}
	}
	return slices.Sorted(maps.Keys(d)), slices.Sorted(maps.Keys(h)), over
}

const dscpConfig = `
[limits]
dscp = 18
wildcard = true
[[interface]]
name = "eth0"
dscp = 10
hop_limit = 9
[[export]]
name = "memory"
listen = ":7174"
size = "1MiB"
dscp = 12
`

// TestDSCP connects a daemon on AF_XDP and a device on kernel sockets in every way. Each packet of the daemon, from the
// SYN to the RST, must have the hop limit of the interface, and the DSCP of its program, export or user. The packets of
// the kernel must have the DSCP of its device or listener, except that a SYN has 0. Invalid DSCPs are refused.
//
//req:rfc9293-MUST-48 rfc9293-SHLD-21
func TestDSCP(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	w, lo := tap(t, tn.A), &wire{t: t}
	lo.fd = lo.listen(t, tn.B.Namespace, 1, false)
	d, socket := run(t, tn.B, dscpConfig)
	near, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	const farDSCP, farHops = 46, 33
	far, err := sockets.Open(sockets.Config{Dial: tn.A.Dial, Listen: tn.A.Listen,
		Options: core.Options{DSCP: farDSCP, HopLimit: farHops}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	port := uint16(7200)
	for _, v6 := range []bool{false, true} {
		a, b := tn.A.Addr4.Addr(), tn.B.Addr4.Addr()
		if v6 {
			a, b = tn.A.Addr6.Addr(), tn.B.Addr6.Addr()
		}
		for _, c := range []struct {
			name           string
			dials, listens verbs.Device // listens is nil: the export listens
			dial           verbs.DialConfig
			listen         verbs.ListenConfig
			later          int // argument of SetDSCP after the first transfer; 0: no call
			b, a           []uint8
			local          bool // both ends are on host B
		}{
			{name: "user's", dials: near, listens: far, b: []uint8{18}, a: []uint8{farDSCP}},
			{name: "program's", dials: near, listens: far, dial: verbs.DialConfig{DSCP: 34},
				listen: verbs.ListenConfig{DSCP: 8}, b: []uint8{34}, a: []uint8{8}},
			{name: "none", dials: near, listens: far, dial: verbs.DialConfig{DSCP: verbs.None},
				listen: verbs.ListenConfig{DSCP: verbs.None}, b: []uint8{0}, a: []uint8{0}},
			{name: "changed", dials: near, listens: far, dial: verbs.DialConfig{DSCP: 34},
				later: 63, b: []uint8{34, 63}, a: []uint8{farDSCP}},
			{name: "listener's", dials: far, listens: near, listen: verbs.ListenConfig{DSCP: 26},
				b: []uint8{26}, a: []uint8{0, farDSCP}},
			{name: "listening user's", dials: far, listens: near, b: []uint8{18},
				a: []uint8{0, farDSCP}},
			{name: "export's", dials: far, b: []uint8{12}, a: []uint8{0, farDSCP}},
			{name: "own host's", dials: near, listens: near, dial: verbs.DialConfig{DSCP: 34},
				listen: verbs.ListenConfig{DSCP: 26}, later: 63, b: []uint8{26, 34, 63},
				local: true},
		} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", c.name, v6), func(t *testing.T) {
				at := netip.AddrPortFrom(b, 7174)
				if c.listens != nil {
					port++
					at = netip.AddrPortFrom(b, port)
					if c.listens == far {
						at = netip.AddrPortFrom(a, port)
					}
					accept(t, c.listens, at, c.listen)
				}
				e := verbstest.New(t, c.dials, 4096)
				if err := e.Endpoint.Dial(ctx, at, c.dial); err != nil {
					t.Fatal(err)
				}
				peer, err := e.RemoteMR()
				if err == nil {
					err = e.WriteAndRead(ctx, peer)
				}
				if c.later != 0 && err == nil {
					if err = e.QP.SetDSCP(c.later); err == nil {
						err = e.WriteAndRead(ctx, peer)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				i, err := e.QP.Info()
				if want := c.b[len(c.b)-1]; err != nil || c.dials == near && i.DSCP != int(want) {
					t.Errorf("Info: DSCP %d, %v, want %d", i.DSCP, err, want)
				}
				for _, q := range d.Snapshot().QPs {
					if q.Remote == at && q.DSCP != i.DSCP {
						t.Errorf("snapshot: DSCP %d, want %d", q.DSCP, i.DSCP)
					}
				}
				e.QP.Close()
				seenOn := w
				if c.local {
					seenOn = lo
				}
				var got, hops []uint8
				if _, ok := eventually(func() (over bool) {
					got, hops, over = seenOn.classes(b, at.Port())
					return over
				}); !ok {
					t.Fatal("the end of the connection is not on the wire")
				}
				if !slices.Equal(got, c.b) || !slices.Equal(hops, []uint8{9}) {
					t.Errorf("of the daemon: DSCP %v, hop limit %v; want %v, 9", got, hops, c.b)
				}
				// Dial of the namespace connects before the device can set the DSCP of the socket, so the SYN has 0.
				if got, _, _ = w.classes(a, at.Port()); !slices.Equal(got, c.a) {
					t.Errorf("of the kernel: DSCP %v, want %v", got, c.a)
				}
			})
		}
	}
	t.Run("bad values", func(t *testing.T) {
		e := verbstest.New(t, near, 64)
		for _, v := range []int{-2, 64, 255, 256} {
			_, err := near.Listen(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7999),
				verbs.ListenConfig{DSCP: v})
			for what, err := range map[string]error{"SetDSCP": e.QP.SetDSCP(v), "Listen": err,
				"Dial": near.Dial(ctx, netip.AddrPortFrom(tn.A.Addr4.Addr(), 7999), e.QP,
					verbs.DialConfig{DSCP: v})} {
				if want := fmt.Sprintf("DSCP %d, want 0 to 63", v); err == nil ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("%s of %d: %v, want %q", what, v, err, want)
				}
			}
		}
	})
}

// TestDSCPOfTables: the connection of a program has the DSCP of the [[interface]], unless [limits] or its [[user]] has
// another. An export without a DSCP has that of the [[interface]].
func TestDSCPOfTables(t *testing.T) {
	tn := hosts(t, topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	w := tap(t, tn.A)
	far, err := sockets.Open(sockets.Config{Dial: tn.A.Dial, Listen: tn.A.Listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	const limits = "[limits]\ndscp = 18\n"
	port := uint16(7300)
	for _, c := range []struct {
		name, tables string
		program      uint8
	}{
		{"interface", "", 10},
		{"limits", limits, 18},
		{"user", limits + "[[user]]\nname = \"root\"\ndscp = 20\n", 20},
		{"user with 0", limits + "[[user]]\nname = \"root\"\ndscp = 0\n", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			port += 2
			_, socket := run(t, tn.B, fmt.Sprintf("%s%sdscp = 10\n[[export]]\nname = \"memory\"\n"+
				"listen = \":%d\"\nsize = \"1MiB\"\n", c.tables, ethTable, port))
			near, err := client.Open(socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { near.Close() })
			program := netip.AddrPortFrom(tn.A.Addr4.Addr(), port+1)
			accept(t, far, program, verbs.ListenConfig{})
			dial := func(dev verbs.Device, at netip.AddrPort, want uint8) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				e := verbstest.New(t, dev, 4096)
				if err := e.Endpoint.Dial(ctx, at, verbs.DialConfig{}); err != nil {
					t.Fatal(err)
				}
				peer, err := e.RemoteMR()
				if err == nil {
					err = e.WriteAndRead(ctx, peer)
				}
				if err != nil {
					t.Fatal(err)
				}
				var got []uint8
				eventually(func() bool {
					got, _, _ = w.classes(tn.B.Addr4.Addr(), at.Port())
					return len(got) > 0
				})
				if !slices.Equal(got, []uint8{want}) {
					t.Errorf("to %v: DSCP %v, want %d", at, got, want)
				}
			}
			dial(near, program, c.program)
			dial(far, netip.AddrPortFrom(tn.B.Addr4.Addr(), port), 10)
		})
	}
}

// accept accepts one connection. The private data of its reply describes the memory of the accepting end.
func accept(t *testing.T, dev verbs.Device, at netip.AddrPort, cfg verbs.ListenConfig) {
	t.Helper()
	l, err := dev.Listen(at, cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := verbstest.New(t, dev, 4096)
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() { cancel(); <-done; l.Close(); e.QP.Close() })
	go func() {
		defer close(done)
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, e.QP, e.MR.Remote().Append(nil))
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("accept: %v", err)
		}
	}()
}
