package xdp_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/host/bond"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// bondNet is a pair of hosts with two links. This kernel has no bonds: a macvlan named bond0 has the address, routes
// and neighbours of a bond, and the engine is told which links are its members. So the members' frames reach the
// program of each, but the macvlan sends nothing.
type bondNet struct {
	*topo.Net
	t     *testing.T
	mu    sync.Mutex
	state map[int]*bond.State // by index of the bond
	index map[*topo.Host]int  // of the bond
}

func newBondNet(t *testing.T) *bondNet {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	n := &bondNet{Net: tn, t: t, state: map[int]*bond.State{}, index: map[*topo.Host]int{}}
	second := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1", MTU: 1500}, PeerName: "eth1",
		PeerNamespace: netlink.NsFd(tn.B.Fd())}
	if err := tn.A.Netlink().LinkAdd(second); err != nil {
		t.Fatal(err)
	}
	for h, other := range map[*topo.Host]*topo.Host{tn.A: tn.B, tn.B: tn.A} {
		nl := h.Netlink()
		nic, err := nl.LinkByName("eth1")
		if err != nil {
			t.Fatal(err)
		}
		b := &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PRIVATE, LinkAttrs: netlink.LinkAttrs{
			Name: "bond0", Index: 100 + int(n.mac(h)[5]), ParentIndex: h.Link.Index,
			HardwareAddr: n.mac(h)}}
		err = errors.Join(nl.LinkSetUp(nic), nl.LinkAdd(b), nl.LinkSetUp(b),
			nl.AddrAdd(b, &netlink.Addr{IPNet: &net.IPNet{IP: n.addr(h).AsSlice(),
				Mask: net.CIDRMask(24, 32)}}),
			nl.NeighSet(&netlink.Neigh{LinkIndex: b.Index, State: netlink.NUD_PERMANENT,
				IP: n.addr(other).AsSlice(), HardwareAddr: n.mac(other)}))
		if err != nil {
			t.Fatal(err)
		}
		n.index[h] = b.Index
		n.state[b.Index] = &bond.State{Mode: netlink.BOND_MODE_ACTIVE_BACKUP,
			Policy: ring.PolicyLayer34, MTU: 1500, Members: []bond.Member{
				{Name: "eth0", Ifindex: h.Link.Index, MTU: 1500, Sends: true},
				{Name: "eth1", Ifindex: nic.Attrs().Index, MTU: 1500},
			}}
	}
	t.Cleanup(xdp.SetBond("bond0", func(_ *netlink.Handle, ifindex int) (*bond.State, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := *n.state[ifindex]
		s.Members = append([]bond.Member(nil), s.Members...)
		return &s, nil
	}))
	return n
}

// mac returns the address of a host's bond.
func (n *bondNet) mac(h *topo.Host) net.HardwareAddr {
	return net.HardwareAddr{2, 2, 0, 0, 0, n.addr(h).As4()[3]}
}

func (n *bondNet) addr(h *topo.Host) netip.Addr {
	if h == n.B {
		return netip.MustParseAddr("198.51.100.2")
	}
	return netip.MustParseAddr("198.51.100.1")
}

// set changes the state of a host's bond, and tells its device.
func (n *bondNet) set(h *topo.Host, d *xdp.Device, edit func(*bond.State)) {
	n.mu.Lock()
	s := *n.state[n.index[h]]
	s.Members = append([]bond.Member(nil), s.Members...)
	edit(&s)
	n.state[n.index[h]] = &s
	n.mu.Unlock()
	if d != nil {
		xdp.LookAtBond(d)
	}
}

// sendOn makes a host send on one member.
func (n *bondNet) sendOn(h *topo.Host, d *xdp.Device, member int) {
	n.set(h, d, func(s *bond.State) {
		for i := range s.Members {
			s.Members[i].Sends = i == member
		}
	})
}

func (n *bondNet) tryOpen(h *topo.Host, log *slog.Logger) (d *xdp.Device, err error) {
	cfg := xdp.Config{Interface: "bond0", Transmit: xdp.TransmitXDP}
	if cfg.Log = log; log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(n.t.Output(), nil))
	}
	err = h.Do(func() (err error) {
		d, err = xdp.Open(cfg)
		return err
	})
	if err == nil {
		n.t.Cleanup(func() { d.Close() })
	}
	return d, err
}

func (n *bondNet) open(h *topo.Host) *xdp.Device {
	n.t.Helper()
	d, err := n.tryOpen(h, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}

// program reports whether a link of a host has an XDP program.
func (n *bondNet) program(h *topo.Host, name string) bool {
	n.t.Helper()
	return programOf(n.t, h, name) != 0
}

// received returns the packets that host B received on a link.
func (n *bondNet) received(name string) uint64 {
	nic, err := n.B.Netlink().LinkByName(name)
	if err != nil {
		n.t.Fatal(err)
	}
	return nic.Attrs().Statistics.RxPackets
}

func (n *bondNet) connect(a, b *xdp.Device) (*verbstest.End, *verbstest.End) {
	ea, eb := verbstest.New(n.t, a, 1<<20), verbstest.New(n.t, b, 1<<20)
	verbstest.Connect(n.t, ea, eb, netip.AddrPortFrom(n.addr(n.B), 7174))
	return ea, eb
}

// TestBondFailover: a connection survives 20 changes of the active member. After the last one its frames leave on that
// member. Closing the devices detaches the program from the members.
func TestBondFailover(t *testing.T) {
	n := newBondNet(t)
	a, b := n.open(n.A), n.open(n.B)
	for _, name := range []string{"eth0", "eth1"} {
		if !n.program(n.A, name) || n.program(n.A, "bond0") {
			t.Errorf("program of %s: %t, of the bond %t", name, n.program(n.A, name),
				n.program(n.A, "bond0"))
		}
	}
	ea, eb := n.connect(a, b)
	for i := range 20 {
		active := (i + 1) % 2
		n.sendOn(n.A, a, active)
		n.sendOn(n.B, b, 1-active) // receivers need not agree
		verbstest.Exercise(t, ea, eb)
	}
	time.Sleep(100 * time.Millisecond) // the last change has reached the threads
	before := [2]uint64{n.received("eth0"), n.received("eth1")}
	verbstest.Exercise(t, ea, eb)
	if v := a.Transport(); !slices.Equal(v.Members, []string{"eth0", "eth1"}) ||
		!slices.Equal(v.Senders, []string{"eth0"}) {
		t.Errorf("members %v, senders %v", v.Members, v.Senders)
	}
	if n.received("eth0") == before[0] || n.received("eth1") > before[1]+2 {
		t.Errorf("the active member carried %d packets, the other %d",
			n.received("eth0")-before[0], n.received("eth1")-before[1])
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"eth0", "eth1"} {
		if n.program(n.A, name) || n.program(n.B, name) {
			t.Errorf("%s keeps a program", name)
		}
	}
}

// TestBondMembersChange: a connection survives when its member leaves and returns, and when all are gone for a moment.
// A member that left has no program.
func TestBondMembersChange(t *testing.T) {
	n := newBondNet(t)
	a, b := n.open(n.A), n.open(n.B)
	ea, eb := n.connect(a, b)
	all := n.state[n.index[n.A]].Members
	wait := func(name string, want bool) {
		t.Helper()
		for range 200 {
			if n.program(n.A, name) == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("program of %s: %t", name, !want)
	}
	leave := func(stay ...bond.Member) {
		n.set(n.A, a, func(s *bond.State) { s.Members = stay })
	}
	for i := range 4 {
		stays, goes := all[1-i%2], all[i%2]
		stays.Sends, goes.Sends = true, false
		n.sendOn(n.B, b, 1-i%2) // the link that goes has no carrier there
		time.Sleep(100 * time.Millisecond)
		leave(stays)
		wait(goes.Name, false)
		verbstest.Exercise(t, ea, eb)
		leave(stays, goes)
		wait(goes.Name, true)
		verbstest.Exercise(t, ea, eb)
	}
	leave()
	wait("eth0", false)
	wait("eth1", false)
	all[0].Sends, all[1].Sends = true, true
	n.set(n.A, a, func(s *bond.State) { s.Mode, s.Members = netlink.BOND_MODE_BALANCE_XOR, all })
	wait("eth0", true)
	wait("eth1", true)
	verbstest.Exercise(t, ea, eb)
}

// TestBondMemberTaken: a member that has a foreign XDP program is served once that program has gone. The log has the
// error once.
func TestBondMemberTaken(t *testing.T) {
	n := newBondNet(t)
	members := n.state[n.index[n.A]].Members
	n.set(n.A, nil, func(s *bond.State) { s.Members = members[:1] })
	var log sharedLog
	a, err := n.tryOpen(n.A, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ea, eb := n.connect(a, n.open(n.B))
	taken := takeInterface(t, n.A, members[1].Ifindex)
	const failure = "cannot serve a member of the bond"
	n.set(n.A, a, func(s *bond.State) { s.Members = members })
	logged := func(text string) func() bool {
		return func() bool { return strings.Contains(log.String(), text) }
	}
	if !eventually(logged(failure)) {
		t.Fatal("no error in the log")
	}
	n.set(n.A, a, func(s *bond.State) { s.MTU++ }) // no reason for another try
	verbstest.Exercise(t, ea, eb)
	taken.Close()
	if !eventually(logged("member joined the bond")) {
		t.Errorf("the member is not served: %s", log.String())
	}
	if k := strings.Count(log.String(), failure); k != 1 {
		t.Errorf("%d errors, want 1: %s", k, log.String())
	}
	verbstest.Exercise(t, ea, eb)
}

// takeInterface attaches the program of another process to an interface of a host.
func takeInterface(t *testing.T, h *topo.Host, ifindex int) *bpf.Steering {
	t.Helper()
	taken, err := bpf.Load(bpf.Options{})
	if err == nil {
		err = h.Do(func() error {
			_, err := taken.Attach(ifindex, bpf.ModeGeneric)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	return taken
}

// TestBondLateMember: a connection survives frames that arrive on a member before it has the program. The host's kernel
// has no socket for them, and responds by RST.
func TestBondLateMember(t *testing.T) {
	n := newBondNet(t)
	members := n.state[n.index[n.A]].Members
	n.set(n.A, nil, func(s *bond.State) { s.Members = members[:1] })
	nl := n.A.Netlink()
	late, err := nl.LinkByIndex(members[1].Ifindex)
	if err == nil { // members have the address of their bond
		err = nl.LinkSetHardwareAddr(late, n.mac(n.A))
	}
	if err != nil {
		t.Fatal(err)
	}
	a, b := n.open(n.A), n.open(n.B)
	ea, eb := n.connect(a, b)
	verbstest.Exercise(t, ea, eb)
	n.sendOn(n.B, b, 1)
	joined := make(chan bool)
	go func() {
		defer close(joined)
		for range 2000 {
			if n.resets(n.A) > 0 { // the kernel has seen frames of the connection
				n.set(n.A, a, func(s *bond.State) { s.Members = members })
				joined <- true
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for {
		verbstest.Exercise(t, ea, eb)
		select {
		case ok := <-joined:
			if !ok {
				t.Error("the kernel saw no frame of the connection")
			}
			verbstest.Exercise(t, ea, eb)
			return
		default:
		}
	}
}

// TestBondModeChange: a connection survives modes in which xwarp cannot send as the kernel does. The log has one
// warning for the change to such a mode, with the next step.
func TestBondModeChange(t *testing.T) {
	n := newBondNet(t)
	var log sharedLog
	a, err := n.tryOpen(n.A, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	b := n.open(n.B)
	ea, eb := n.connect(a, b)
	const warning = "mode of the bond changed"
	for _, mode := range []netlink.BondMode{netlink.BOND_MODE_BALANCE_XOR,
		netlink.BOND_MODE_BALANCE_RR, netlink.BOND_MODE_802_3AD} {
		before := strings.Count(log.String(), warning)
		n.set(n.A, a, func(s *bond.State) { s.Mode = mode })
		verbstest.Exercise(t, ea, eb)
		want := before
		if bond.CheckMode(mode) != nil {
			want++
		}
		for range 100 {
			if strings.Count(log.String(), warning) == want {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := strings.Count(log.String(), warning); n != want {
			t.Errorf("%v: %d warnings, want %d: %s", mode, n, want, log.String())
		}
	}
	if want := `next="restart, or set the mode back"`; !strings.Contains(log.String(), want) {
		t.Errorf("logged %s", log.String())
	}
}

// sharedLog collects what several goroutines write.
type sharedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// resets returns the number of resets that the kernel of a host sent.
func (n *bondNet) resets(h *topo.Host) (sent int) {
	n.t.Helper()
	err := h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		lines := regexp.MustCompile("(?m)^Tcp: (.*)$").FindAllSubmatch(text, -1)
		if err != nil || len(lines) != 2 {
			return fmt.Errorf("%w: %s", err, text)
		}
		names, values := strings.Fields(string(lines[0][1])), strings.Fields(string(lines[1][1]))
		sent, err = strconv.Atoi(values[slices.Index(names, "OutRsts")])
		return err
	})
	if err != nil {
		n.t.Error(err)
	}
	return sent
}

// TestBondRefused: a bond whose mode the engine cannot serve gets generic XDP on the bond itself. A bond without
// members, or with a member that has a foreign program, is refused. The messages name the next step, also for a member
// with a smaller MTU than the bond; that for a foreign program names only the member.
func TestBondRefused(t *testing.T) {
	n := newBondNet(t)
	var log strings.Builder
	n.set(n.A, nil, func(s *bond.State) { s.Mode = netlink.BOND_MODE_BALANCE_RR })
	d, err := n.tryOpen(n.A, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || n.program(n.A, "eth0") || !n.program(n.A, "bond0") {
		t.Fatalf("%v; program of the member %t", err, n.program(n.A, "eth0"))
	}
	if !strings.Contains(log.String(), "not balance-rr") ||
		!strings.Contains(log.String(), "type bond mode active-backup") {
		t.Errorf("logged %s", log.String())
	}
	d.Close()
	members := n.state[n.index[n.A]].Members
	n.set(n.A, nil, func(s *bond.State) {
		s.Mode, s.Members = netlink.BOND_MODE_ACTIVE_BACKUP, nil
	})
	if _, err := n.tryOpen(n.A, nil); !errors.Is(err, unix.ENODEV) ||
		!strings.Contains(err.Error(), "ip link set NAME master bond0") {
		t.Errorf("without members: %v", err)
	}
	n.set(n.A, nil, func(s *bond.State) { s.Members, s.MTU = members, 9000 })
	log.Reset()
	d, err = n.tryOpen(n.A, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if want := `next="ip link set eth1 mtu 9000"`; !strings.Contains(log.String(), want) {
		t.Errorf("logged %s", log.String())
	}
	d.Close()
	takeInterface(t, n.A, members[1].Ifindex)
	want := fmt.Sprintf("member %s of bond bond0", members[1].Name)
	if _, err := n.tryOpen(n.A, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a member with a foreign program: %v", err)
	}
	if n.program(n.A, "eth0") {
		t.Error("the other member keeps a program")
	}
}
