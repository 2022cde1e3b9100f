package daemon_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

func init() { roles["wildcard"] = wildcardRole }

// wildcardRole listens on an address until it is killed, and prints "listening" or "refused". Its arguments: the
// socket, the address.
func wildcardRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	defer dev.Close()
	l, err := dev.Listen(netip.MustParseAddrPort(args[1]), verbs.ListenConfig{})
	var e *control.Error
	switch {
	case err == nil:
		defer l.Close()
		fmt.Println("listening")
	case errors.As(err, &e) && e.Code == control.CodePermission:
		fmt.Println("refused")
	default:
		return err
	}
	time.Sleep(time.Minute)
	return nil
}

// TestWildcard: an unprivileged program may listen on all addresses only if the configuration permits it. Even then it
// must not respond for addresses that the host routes for.
func TestWildcard(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	_, socket := run(t, tn.A, ethTable+"[[user]]\nname = \"65533\"\nwildcard = true\n")
	own := netip.AddrPortFrom(tn.A.Addr4.Addr(), 8080)
	foreign := netip.MustParseAddrPort("203.0.113.77:8080")
	for _, c := range []struct {
		uid  uint32
		at   string
		want string
	}{
		{nobody, "0.0.0.0:8080", "refused"},
		{nobody, "[::]:8080", "refused"},
		{nobody, "[::ffff:0.0.0.0]:8080", "refused"},
		{nobody, netip.AddrPortFrom(own.Addr(), 8081).String(), "listening"},
		{nobody - 1, "0.0.0.0:8080", "listening"},
	} {
		p := start(t, publicExe(t), c.uid, "wildcard", socket, c.at)
		if got := p.line(); got != c.want {
			t.Errorf("user %d at %s: %s, want %s", c.uid, c.at, got, c.want)
		}
	}
	reaches := func(at netip.AddrPort) error {
		return tn.B.Do(func() error {
			c, err := net.DialTimeout("tcp", at.String(), 300*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	dst := &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}
	if err := tn.B.Netlink().RouteAdd(&netlink.Route{LinkIndex: tn.B.Link.Index,
		Gw: own.Addr().AsSlice(), Dst: dst}); err != nil {
		t.Fatal(err)
	}
	if err := reaches(own); err != nil {
		t.Errorf("at the host's own address: %v", err)
	}
	if reaches(foreign) == nil {
		t.Error("a program answers at an address that the host routes for")
	}
}
