package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// twoLinks is two hosts with two links between them, and a daemon on B, in its own process, that serves both links.
type twoLinks struct {
	t      *testing.T
	tn     *topo.Net
	socket string
	web    string
	daemon *child
	at     [2]netip.AddrPort // addresses of the exports on eth0 and on eth1
}

const second = "198.51.100." // the network of eth1

func startTwoLinks(t *testing.T, table string) *twoLinks {
	t.Helper()
	tn := hosts(t, topo.Options{Queues: 2, IPv4Only: true, OffloadsA: topo.NoOffloads})
	l := &twoLinks{t: t, tn: tn}
	l.addSecond()
	l.start(table)
	return l
}

// start starts the daemon.
func (l *twoLinks) start(table string) {
	t, tn := l.t, l.tn
	t.Helper()
	l.channels(1)
	l.at[0] = netip.AddrPortFrom(tn.B.Addr4.Addr(), 717) // a port below 1024 needs a capability whenever it is bound
	l.at[1] = netip.MustParseAddrPort(second + "2:7174")
	dir := t.TempDir()
	l.web = filepath.Join(dir, "web")
	text := fmt.Sprintf("[http]\nlisten = %q\n[[interface]]\nname = \"eth0\"\n%s"+
		"[[interface]]\nname = \"eth1\"\n", l.web, table)
	for i, at := range l.at {
		text += fmt.Sprintf("[[export]]\nname = \"memory%d\"\ninterface = \"eth%d\"\nlisten = "+
			"\"%v\"\n"+
			"size = \"1MiB\"\n", i, i, at)
	}
	path, socket := writeConfig(t, text)
	l.socket = socket
	l.daemon = start(t, "/proc/self/exe", 0, "daemon",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), tn.B.Fd()), path)
	if got := l.daemon.line(); got != "ready" {
		t.Fatalf("daemon: %q", got)
	}
}

func (l *twoLinks) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// addSecond adds eth1 to both hosts.
func (l *twoLinks) addSecond() {
	l.t.Helper()
	a := netlink.NewLinkAttrs()
	a.Name = "eth1"
	v := netlink.NewVeth(a)
	v.PeerName, v.PeerNamespace = "eth1", netlink.NsFd(l.tn.B.Fd())
	l.must(l.tn.A.Netlink().LinkAdd(v))
	for i, h := range []*topo.Host{l.tn.A, l.tn.B} {
		nic, err := h.Netlink().LinkByName("eth1")
		l.must(err)
		l.must(h.Netlink().AddrAdd(nic, &netlink.Addr{IPNet: &net.IPNet{
			IP: net.ParseIP(second + strconv.Itoa(i+1)).To4(), Mask: net.CIDRMask(24, 32)}}))
		l.must(h.Netlink().LinkSetUp(nic))
	}
	l.must(l.tn.A.SetOffloads("eth1", topo.NoOffloads))
}

func (l *twoLinks) nic() netlink.Link {
	l.t.Helper()
	nic, err := l.tn.B.Netlink().LinkByName("eth0")
	l.must(err)
	return nic
}

// channels sets the number of receive queues of eth0 on B, as ethtool -L does.
func (l *twoLinks) channels(n uint32) {
	l.t.Helper()
	l.must(l.tn.B.Do(func() error { return ethtool.SetQueues("eth0", n) }))
}

// dial connects to the export of a link, from A.
func (l *twoLinks) dial(i int) (*peer, error) {
	return dialExportBy(l.t, sockets.Config{Dial: l.tn.A.Dial}, l.at[i])
}

func (l *twoLinks) connect(i int) *peer {
	l.t.Helper()
	var p *peer
	var err error
	_, ok := eventually(func() bool { p, err = l.dial(i); return err == nil })
	if !ok {
		l.t.Fatalf("eth%d: %v", i, err)
	}
	return p
}

// device returns the state of eth0, and the snapshot that has it.
func (l *twoLinks) device() (d control.DeviceState, s control.Snapshot) {
	l.t.Helper()
	dev, err := client.OpenConfig(client.Config{Path: control.OperatorPath(l.socket),
		Device: "eth1"})
	l.must(err)
	defer dev.Close()
	s, err = dev.Snapshot(l.t.Context())
	l.must(err)
	for _, d := range s.Devices {
		if d.Name == "eth0" {
			return d, s
		}
	}
	l.t.Fatal("eth0 is not in the status")
	return d, s
}

// counters returns a part's counters of eth0.
func (l *twoLinks) counters(part string) map[string]uint64 {
	_, s := l.device()
	return s.Statistics.Values("eth0", part)
}

// shows waits until the state of eth0 satisfies a condition.
func (l *twoLinks) shows(what string, ok func(d *control.DeviceState) bool) {
	l.t.Helper()
	var d control.DeviceState
	_, yes := eventually(func() bool { d, _ = l.device(); return ok(&d) })
	if !yes {
		l.t.Fatalf("%s: %+v", what, d)
	}
}

// metric returns a metric of eth0.
func (l *twoLinks) metric(name string) float64 {
	l.t.Helper()
	status, body := fetch(l.t, browser(here, "unix", l.web), "http://localhost/metrics")
	_, series := families(body)
	v, err := strconv.ParseFloat(series[name+`{device="eth0"}`], 64)
	if status != 200 || err != nil {
		l.t.Fatalf("%s: status %d, %v", name, status, err)
	}
	return v
}

// load writes to an export and reads back in a loop until stop is called or the connection fails. stop returns the
// error.
func (p *peer) load(fill byte) (stop func() error) {
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		mine := p.Mem[:1024]
		copy(mine, bytes.Repeat([]byte{fill}, len(mine)))
		for !over.Load() {
			err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, 1024)},
				RemoteSTag: p.info.STag, RemoteTO: p.info.Base})
			if err == nil {
				err = p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(1024, 1024)},
					RemoteSTag: p.info.STag, RemoteTO: p.info.Base})
			}
			if err == nil && !bytes.Equal(mine, p.Mem[1024:2048]) {
				err = errors.New("what was read is not what was written")
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() error { over.Store(true); return <-done }
}

// TestLinkUnderLoad changes the state, the receive queues, the MTU, the MAC address and the IP address of eth0 while
// peers write and read on both links. Connections on both must survive, and the status, metrics and events must report
// the changes. The daemon has dropped its capabilities.
func TestLinkUnderLoad(t *testing.T) {
	t.Parallel()
	l := startTwoLinks(t, "")
	h, nic := l.tn.B.Netlink(), l.nic()
	stops := []func() error{l.connect(0).load(1), l.connect(1).load(2)}
	l.must(h.LinkSetDown(nic))
	l.shows("down", func(d *control.DeviceState) bool { return d.Link == control.LinkDown })
	if up := l.metric("xwarp_device_link_up"); up != 0 {
		t.Error("the metrics show a link up that is down")
	}
	l.must(h.LinkSetUp(nic))
	l.shows("up", func(d *control.DeviceState) bool { return d.Link == control.LinkUp })
	l.channels(2)
	l.shows("channels", func(d *control.DeviceState) bool {
		return d.Queues == 2 && l.counters("link")["queues"] == 1
	})
	l.must(h.LinkSetMTU(nic, 1000))
	l.shows("MTU", func(d *control.DeviceState) bool {
		return d.MTU == 1000
	})
	l.must(h.LinkSetMTU(nic, 1500))
	l.shows("MTU", func(d *control.DeviceState) bool { return d.MTU == 1500 })
	l.must(h.LinkSetHardwareAddr(nic, net.HardwareAddr{2, 0, 0, 0, 0xca, 0xfe}))
	l.shows("MAC", func(*control.DeviceState) bool {
		return l.counters("link")["addresses"] == 1
	})
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: l.at[0].Addr().AsSlice(),
		Mask: net.CIDRMask(24, 32)}}
	l.must(h.AddrDel(nic, addr))
	l.shows("address gone", func(d *control.DeviceState) bool { return len(d.Missing) == 1 })
	if n := l.metric("xwarp_device_missing_addresses"); n != 1 {
		t.Errorf("%v addresses are missing by the metrics", n)
	}
	l.must(h.AddrAdd(nic, addr))
	l.shows("address back", func(d *control.DeviceState) bool { return len(d.Missing) == 0 })
	for i, stop := range stops {
		if err := stop(); err != nil {
			t.Errorf("the connection on eth%d: %v", i, err)
		}
	}
	for _, what := range []string{
		"link is down: connections wait until they time out",
		"link is up", "address is back: its connections and listeners continue",
		"interface has new receive queues: relaying their frames to the existing workers"} {
		l.told(what, 1)
	}
	l.told("MTU changed: connections adapt", 2)
	if err := l.connect(0).load(3)(); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

// TestInterfaceComesBack deletes and recreates eth0 twice under load. The daemon, which has dropped its capabilities,
// must serve it again, with the memory of the export and the counters of the device. Connections on eth1 must survive.
func TestInterfaceComesBack(t *testing.T) {
	t.Parallel()
	l := startTwoLinks(t, "")
	stop := l.connect(1).load(2)
	var moved uint64
	for round := range uint64(2) {
		p := l.connect(0)
		if round > 0 {
			l.must(p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(0, 8)},
				RemoteSTag: p.info.STag, RemoteTO: p.info.Base}))
			if p.Mem[0] != byte(round) {
				t.Errorf("round %d: the export's memory is %x", round, p.Mem[:8])
			}
		}
		over := p.load(byte(round + 1))
		program, err := client.OpenConfig(client.Config{Path: l.socket, Device: "eth0"})
		l.must(err)
		defer program.Close()
		if _, err := program.AllocPD(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // so that some bytes are transferred
		l.must(l.tn.B.Netlink().LinkDel(l.nic()))
		if err := over(); err == nil {
			t.Errorf("round %d: the connection did not end", round)
		}
		l.shows("gone", func(d *control.DeviceState) bool {
			return d.Link == control.LinkGone && d.Error != ""
		})
		d, s := l.device()
		if open := l.metric("xwarp_device_open"); open != 0 {
			t.Error("the metrics show a lost device as working")
		}
		for _, e := range s.Exports {
			if failed := e.Error != ""; failed != (e.Name == "memory0") {
				t.Errorf("export %s: %q", e.Name, e.Error)
			}
		}
		refused(t, l.socket)
		l.must(l.tn.Reconnect())
		l.shows("served again", func(d *control.DeviceState) bool {
			return d.Error == "" && d.Reopened == round+1 && d.Mapper == ""
		})
		d2, _ := l.device()
		now, was := d2.In, d.In
		if now < was || was <= moved {
			t.Errorf("round %d: %d bytes in, %d before, %d a round ago", round, now, was, moved)
		} else {
			moved = was
		}
	}
	if err := stop(); err != nil {
		t.Errorf("the connection on eth1: %v", err)
	}
	l.told("device lost: disconnecting its programs, closing its exports; other devices are not affected", 2)
	l.told("device is open again", 2)
}

// told checks the number of events of eth0 with a text.
func (l *twoLinks) told(what string, want int) {
	l.t.Helper()
	_, s := l.device()
	n := 0
	for _, e := range s.Events {
		if e.Event == what && e.Device == "eth0" {
			n++
		}
	}
	if n != want {
		l.t.Errorf("%d events %q, want %d", n, what, want)
	}
}

// refused checks that a program cannot use a lost device.
func refused(t *testing.T, socket string) {
	t.Helper()
	p, err := client.OpenConfig(client.Config{Path: socket, Device: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.AllocPD(); err == nil || !strings.Contains(err.Error(), "eth0 is gone") ||
		!strings.Contains(err.Error(), "opened again") {
		t.Errorf("the program got: %v", err)
	}
}

// TestRestartPolicy: with restart = "exit", the daemon goes on without the removed interface, and exits once the
// interface is back.
func TestRestartPolicy(t *testing.T) {
	l := startTwoLinks(t, "restart = \"exit\"\n")
	l.must(l.tn.B.Netlink().LinkDel(l.nic()))
	l.shows("gone", func(d *control.DeviceState) bool { return d.Link == control.LinkGone })
	if err := l.connect(1).load(1)(); err != nil {
		t.Errorf("eth1: %v", err)
	}
	l.must(l.tn.Reconnect())
	if got := l.daemon.line(); !strings.HasPrefix(got, "error: "+daemon.ErrRestart.Error()) {
		t.Errorf("the daemon printed %q", got)
	}
}

// TestReloadOnLostDevice: exports that a reload adds to a lost device wait for the device, with an error in their
// state, and open when the device is back.
func TestReloadOnLostDevice(t *testing.T) {
	tn := hosts(t, topo.Options{OffloadsA: topo.NoOffloads})
	exported := fmt.Sprintf("[[export]]\nname = \"memory\"\nlisten = \"0.0.0.0:7174\"\n"+
		"size = \"1MiB\"\n[[export]]\nname = \"files\"\nlisten = \"0.0.0.0:7175\"\n"+
		"serve = \"directory\"\npath = %q\n", t.TempDir())
	d, _ := run(t, tn.B, ethTable)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	nic, err := tn.B.Netlink().LinkByName(tn.B.Link.Name)
	if err == nil {
		err = tn.B.Netlink().LinkDel(nic)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := eventually(func() bool {
		return d.Snapshot().Devices[0].Error != ""
	}); !ok {
		t.Fatal("the device is not lost")
	}
	now, _ := load(t, ethTable+exported)
	if err := d.ApplyConfig(now); err != nil {
		t.Fatal(err)
	}
	exports := func(failed bool) bool {
		list := d.Snapshot().Exports
		for _, e := range list {
			if (e.Error != "") != failed {
				return false
			}
		}
		return len(list) == 2
	}
	if !exports(true) {
		t.Errorf("while the device is lost: %+v", d.Snapshot().Exports)
	}
	if err := tn.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if _, ok := eventually(func() bool { return exports(false) }); !ok {
		t.Fatalf("when it is back: %+v", d.Snapshot().Exports)
	}
	far, at := kernelOn(t, tn.A), netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	e := verbstest.New(t, far, 8192)
	peer, err := e.Dial(t.Context(), at)
	if err == nil {
		err = e.WriteAndRead(t.Context(), peer)
	}
	if err != nil {
		t.Error(err)
	}
}
