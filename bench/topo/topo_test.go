package topo

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"xwarp/bpf/needs"
)

// mustNew returns a topology that is closed when the test ends.
func mustNew(t *testing.T, o Options) *Net {
	t.Helper()
	needs.NetNS(t)
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestDirect(t *testing.T) {
	n := mustNew(t, Options{MTU: 9000, Queues: 2, OffloadsB: NoOffloads})
	for _, h := range []*Host{n.A, n.B} {
		link, err := h.Netlink().LinkByIndex(h.Link.Index)
		if err != nil {
			t.Fatal(err)
		}
		at := link.Attrs()
		if at.Name != h.Link.Name || at.MTU != 9000 || at.NumRxQueues != 2 || at.NumTxQueues != 2 ||
			at.Flags&net.FlagUp == 0 {
			t.Errorf("link is %+v", at)
		}
		if at.HardwareAddr.String() != h.Link.MAC.String() {
			t.Errorf("MAC is %s, the topology says %s", at.HardwareAddr, h.Link.MAC)
		}
		qdiscs, err := h.Netlink().QdiscList(link)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			if q.Type() != "noqueue" {
				t.Errorf("queueing discipline %s: a full ring under it can wedge the veth",
					q.Type())
			}
		}
	}
	off, err := n.B.ReadOffloads(n.B.Link.Name)
	if err != nil || off != NoOffloads {
		t.Errorf("B's offloads are %+v (%v), want all off", off, err)
	}
	on, err := n.A.ReadOffloads(n.A.Link.Name)
	if want := (Offloads{On, On, On, Off}); err != nil || on != want {
		t.Errorf("A's offloads are %+v (%v), want veth's own %+v", on, err, want)
	}
	if err := n.A.SetOffloads(n.A.Link.Name, Offloads{GSO: Off}); err != nil {
		t.Error(err)
	}
	if on, _ = n.A.ReadOffloads(n.A.Link.Name); on.GSO != Off || on.TxChecksum != On {
		t.Errorf("after switching GSO off: %+v", on)
	}
	for _, o := range []Offloads{NoOffloads, {On, On, On, Off}} { // everything, and back
		if err := n.A.SetOffloads(n.A.Link.Name, o); err != nil {
			t.Error(err)
		}
		if got, err := n.A.ReadOffloads(n.A.Link.Name); err != nil || got != o {
			t.Errorf("offloads are %+v (%v), want %+v", got, err, o)
		}
	}
	exchange(t, n, n.B.Addr4.Addr())
	exchange(t, n, n.B.Addr6.Addr())
}

// exchange sends bytes from A to B over kernel TCP immediately. It fails if IPv6 addresses are not usable yet, as
// during duplicate address detection.
func exchange(t *testing.T, n *Net, to netip.Addr) {
	t.Helper()
	var l net.Listener
	err := n.B.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		t.Fatalf("listening on %s: %v", to, err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		b := make([]byte, 16)
		k, _ := c.Read(b)
		got <- string(b[:k])
	}()
	err = n.A.Do(func() error {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "hello" {
		t.Fatalf("%s received %q", to, s)
	}
}

func TestRelaySpace(t *testing.T) {
	n := mustNew(t, Options{Relay: true, IPv4Only: true})
	if n.A.Addr6.IsValid() || !n.A.Addr4.IsValid() {
		t.Errorf("addresses %v and %v do not follow IPv4Only", n.A.Addr4, n.A.Addr6)
	}
	for _, l := range []Link{n.Relay.ToA, n.Relay.ToB} {
		link, err := n.Relay.Netlink().LinkByName(l.Name)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().Index != l.Index || link.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("link %s: %+v", l.Name, link.Attrs())
		}
		addrs, err := n.Relay.Netlink().AddrList(link, netlink.FAMILY_ALL)
		if err != nil || len(addrs) != 0 {
			t.Errorf("the relay's link %s has addresses %v (%v)", l.Name, addrs, err)
		}
	}
}

func TestDoReturnsThread(t *testing.T) {
	n := mustNew(t, Options{})
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var first, inner, outer string
	err = n.A.Do(func() error {
		first = spaceOf(t)
		if err := n.B.Do(func() error { inner = spaceOf(t); return nil }); err != nil {
			return err
		}
		outer = spaceOf(t)
		return errors.New("the function's own error")
	})
	if err == nil || err.Error() != "the function's own error" {
		t.Errorf("Do returned %v", err)
	}
	if first != outer || first == inner || first == home.UniqueId() || inner == home.UniqueId() {
		t.Errorf("spaces: home %s, A %s, B inside A %s, A again %s", home.UniqueId(), first, inner,
			outer)
	}
	if err := n.A.Do(func() error { panicless(); return nil }); err == nil {
		t.Error("a function that ends its goroutine gave no error")
	}
	for range 64 { // enough goroutines that each thread of the runtime runs one
		done := make(chan string)
		go func() { done <- spaceOf(t) }()
		if s := <-done; s != home.UniqueId() {
			t.Fatalf("a goroutine runs in %s, home is %s", s, home.UniqueId())
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		say  string
	}{
		{"small MTU", Options{MTU: 1279}, "1279"},
		{"large MTU", Options{MTU: 65536}, "65536"},
		{"queues", Options{Queues: 65}, "65 queues"},
		{"negative queues", Options{Queues: -1}, "-1 queues"},
		{"families", Options{IPv4Only: true, IPv6Only: true}, "no address family"},
	} {
		n, err := New(c.o)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: error %v does not say %q", c.name, err, c.say)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	n := mustNew(t, Options{})
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPrivilegeError(t *testing.T) {
	if os.Getenv("TOPO_UNPRIVILEGED") == "1" || os.Geteuid() != 0 {
		_, err := New(Options{})
		if !errors.Is(err, ErrPrivileges) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Fatalf("New without privileges: %v", err)
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := copyExecutable(t, exe)
	cmd := exec.Command(bin, "-test.run=^TestPrivilegeError$")
	cmd.Env = append(os.Environ(), "TOPO_UNPRIVILEGED=1")
	cmd.Dir = "/"
	asNobody(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "SKIP") {
		t.Fatalf("the child did not test anything:\n%s", out)
	}
}

func spaceOf(t *testing.T) string {
	t.Helper()
	h, err := netns.Get()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer h.Close()
	return h.UniqueId()
}
