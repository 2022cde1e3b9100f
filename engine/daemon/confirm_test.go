package daemon_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

// awaiting is a daemon on host A that runs until the test ends. The test fires the timer of the confirmation.
type awaiting struct {
	t      *testing.T
	net    *topo.Net
	socket string
	log    buffer
	asked  time.Duration // duration of the timer; 0: no timer was started
	fire   chan time.Time
	ended  chan struct{} // closed when Run has returned err
	err    error
}

const exported = ethTable + "[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:7174\"\nsize = 4096\n"

// await starts an awaiting daemon. session is the address of the operator's SSH session, text precedes the interface in
// the configuration.
func await(t *testing.T, tn *topo.Net, session netip.Addr, text string) *awaiting {
	t.Helper()
	a := &awaiting{t: t, net: tn, fire: make(chan time.Time, 1), ended: make(chan struct{})}
	cfg, socket := load(t, text+exported)
	a.socket = socket
	after := func(wait time.Duration) <-chan time.Time { a.asked = wait; return a.fire }
	var d *daemon.Daemon
	if err := tn.A.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{Log: slog.New(slog.NewTextHandler(&a.log, nil)),
			SSHAddress: session, After: after})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { a.err = d.Run(ctx); close(a.ended) }()
	t.Cleanup(func() { stop(); <-a.ended })
	return a
}

// confirm confirms as the operator.
func (a *awaiting) confirm() (control.ConfirmResult, error) {
	a.t.Helper()
	dev, err := client.Open(control.OperatorPath(a.socket))
	if err != nil {
		a.t.Fatal(err)
	}
	defer dev.Close()
	return dev.Confirm(a.t.Context())
}

// end waits for Run to return.
func (a *awaiting) end() error {
	a.t.Helper()
	select {
	case <-a.ended:
		return a.err
	case <-time.After(time.Minute):
		a.t.Fatal("the daemon does not end")
		return nil
	}
}

// portFree reports whether the host can use the export's port again.
func (a *awaiting) portFree() bool {
	return a.net.A.Do(func() error {
		l, err := net.Listen("tcp", ":7174")
		if err == nil {
			l.Close()
		}
		return err
	}) == nil
}

const within90 = "confirm = \"90s\"\n"

// TestUnconfirmed: without a confirmation in time, the daemon detaches its XDP program, frees the ports of its exports
// and the control socket, and Run returns ErrUnconfirmed. The log says how to confirm, and why the daemon stopped.
func TestUnconfirmed(t *testing.T) {
	a := await(t, hosts(t), netip.Addr{}, within90)
	if a.asked != 90*time.Second || !attached(t, a.net.A) || a.portFree() {
		t.Fatalf("before: a timer of %v, attached %v, port free %v", a.asked, attached(t, a.net.A),
			a.portFree())
	}
	if err := a.snapshot(func(left float64) bool { return left > 0 }); err != nil {
		t.Error(err)
	}
	a.fire <- time.Time{}
	if err := a.end(); !errors.Is(err, daemon.ErrUnconfirmed) {
		t.Errorf("Run: %v", err)
	}
	if attached(t, a.net.A) || !a.portFree() {
		t.Errorf("afterwards: attached %v, port free %v", attached(t, a.net.A), a.portFree())
	}
	if _, err := client.Open(a.socket); err == nil {
		t.Error("the control socket is still served")
	}
	says(t, a.log.String(), "run xwarp confirm, or xwarpd removes its XDP programs and exits",
		"next=\"xwarp confirm --socket "+a.socket, "within=1m30s",
		"no xwarp confirm in time: removing the XDP programs and stopping",
		"stopped without xwarp confirm: XDP programs detached",
		"interfaces=[eth0]", "or change daemon.confirm")
}

// snapshot checks the time left for a confirmation in the snapshot of the daemon.
func (a *awaiting) snapshot(ok func(left float64) bool) error {
	dev, err := client.Open(a.socket)
	if err != nil {
		return err
	}
	defer dev.Close()
	s, err := dev.Snapshot(a.t.Context())
	if err == nil && !ok(s.Unconfirmed) {
		a.t.Errorf("%v seconds in the snapshot", s.Unconfirmed)
	}
	return err
}

// TestConfirmed: a confirmed daemon runs on after the deadline. A second confirmation is reported as such.
func TestConfirmed(t *testing.T) {
	a := await(t, hosts(t), netip.Addr{}, within90)
	if r, err := a.confirm(); err != nil || r.State != control.ConfirmDone || r.Left <= 0 ||
		r.Left > 90 {
		t.Fatalf("confirmation: %+v, %v", r, err)
	}
	a.fire <- time.Time{}
	if r, err := a.confirm(); err != nil || r.State != control.ConfirmAlready {
		t.Errorf("second confirmation: %+v, %v", r, err)
	}
	if err := a.snapshot(func(left float64) bool { return left == 0 }); err != nil {
		t.Error(err)
	}
	select {
	case <-a.ended:
		t.Fatalf("a confirmed daemon stopped: %v", a.err)
	case <-time.After(pause):
	}
	if !attached(t, a.net.A) {
		t.Error("a confirmed daemon is not attached")
	}
	says(t, a.log.String(), "xwarp confirm received: xwarpd keeps running")
}

// TestConfirmNotAwaited: a daemon that waits for no confirmation accepts one by the operator, and refuses other users.
func TestConfirmNotAwaited(t *testing.T) {
	_, socket := kernel(t, "")
	r := dialRaw(t, control.OperatorPath(socket))
	control.CloseAll(r.hello())
	if reply, _ := r.call(control.OpConfirm, ""); reply.Error != nil ||
		string(reply.Result) != `{"state":"not_awaited","left_seconds":0}` {
		t.Errorf("%s, %+v", reply.Result, reply.Error)
	}
	c := start(t, publicExe(t), nobody, "confirm", socket)
	says(t, c.line(), "only the operator may confirm: as root, with "+control.OperatorPath(socket))
}

// confirmRole tries to confirm. Its argument: the socket.
func confirmRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	defer dev.Close()
	_, err = dev.Confirm(context.Background())
	return err
}

// TestOwnSession: if the operator's SSH session uses the interface, or one above it, the daemon waits for a
// confirmation. The configuration overrides that.
func TestOwnSession(t *testing.T) {
	tn := hosts(t)
	upper := netip.MustParseAddr("198.51.100.7")
	if err := addUpper(tn.A, upper); err != nil {
		t.Fatal(err)
	}
	own := tn.A.Addr4.Addr()
	for _, tc := range []struct {
		name, text string
		session    netip.Addr
		want       time.Duration
	}{
		{"own address", "", own, time.Minute},
		{"mapped", "", netip.AddrFrom16(own.As16()), time.Minute},
		{"IPv6", "", tn.A.Addr6.Addr(), time.Minute},
		{"interface above", "", upper, time.Minute},
		{"another interface", "", netip.MustParseAddr("127.0.0.1"), 0},
		{"no session", "", netip.Addr{}, 0},
		{"off", "confirm = \"0s\"\n", own, 0},
		{"another time", "confirm = \"5m\"\n", own, 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := await(t, tn, tc.session, tc.text)
			if a.asked != tc.want {
				t.Errorf("the daemon waits for %v, want %v", a.asked, tc.want)
			}
			if tc.want == time.Minute {
				says(t, a.log.String(), "your SSH session uses this interface", "device=eth0",
					"within=1m0s", "xwarp confirm")
			}
		})
	}
}

// addUpper adds an interface with an address above the host's interface: a VLAN, or a macvlan if the kernel has no
// VLANs.
func addUpper(h *topo.Host, a netip.Addr) (err error) {
	nl := h.Netlink()
	attrs := netlink.LinkAttrs{Name: "upper", ParentIndex: h.Link.Index}
	for _, l := range []netlink.Link{
		&netlink.Vlan{LinkAttrs: attrs, VlanId: 100}, &netlink.Macvlan{LinkAttrs: attrs,
			Mode: netlink.MACVLAN_MODE_BRIDGE},
	} {
		if err = nl.LinkAdd(l); err == nil {
			return nl.AddrAdd(l,
				&netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}})
		}
	}
	return err
}

// TestOwnSessionOnBridge: the daemon also waits if the session uses a bridge above the interface.
func TestOwnSessionOnBridge(t *testing.T) {
	needs.XSK(t)
	tn := hosts(t)
	at := netip.MustParseAddr("198.51.100.8")
	nl := tn.A.Netlink()
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	err := nl.LinkAdd(br)
	if err == nil {
		err = nl.AddrAdd(br, &netlink.Addr{IPNet: &net.IPNet{IP: at.AsSlice(),
			Mask: net.CIDRMask(24, 32)}})
	}
	if err == nil {
		var nic netlink.Link
		if nic, err = nl.LinkByName(tn.A.Link.Name); err == nil {
			err = nl.LinkSetMaster(nic, br)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if a := await(t, tn, at, ""); a.asked != time.Minute {
		t.Errorf("it waits for %v", a.asked)
	}
}
