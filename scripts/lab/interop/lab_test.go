package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xwarp/engine/sockets"
	"xwarp/engine/testkit/rping"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/scripts/lab/vm"
)

var runLab = flag.Bool("lab", os.Getenv("LAB") == "1", "run the tests against Linux's soft-iWARP "+
	"in a virtual machine (or LAB=1 in the environment)")

// bench is a machine and xwarp's devices in a namespace on the same network.
type bench struct {
	t   *testing.T
	net *vm.Network
	vm  *vm.VM

	devices []*xdp.Device // xwarp's devices on AF_XDP
}

// need boots a machine with soft-iWARP, or skips the test if it should not run.
func need(t *testing.T, siw vm.Siw) *bench {
	t.Helper()
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.Need(t)
	return boot(t, vm.Options{Siw: siw})
}

// boot starts a machine. If o has no network, the machine gets a new one.
func boot(t *testing.T, o vm.Options) *bench {
	t.Helper()
	if o.Network == nil {
		o.Network = network(t, vm.DefaultMTU)
	}
	return &bench{t: t, net: o.Network, vm: start(t, o)}
}

// network makes a network that ends with the test.
func network(t *testing.T, mtu int) *vm.Network {
	t.Helper()
	n, err := vm.NewNetwork(mtu)
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

// start starts a machine that ends with the test. If the test fails, it logs the last lines of the machine's console.
func start(t *testing.T, o vm.Options) *vm.VM {
	t.Helper()
	m, err := vm.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && m.Running() {
			t.Log(m.ConsoleEnd())
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// compile runs the go command with args and without cgo, to build programs that run in machines.
func compile(t *testing.T, args ...string) {
	t.Helper()
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

// xdpDevice opens a device on AF_XDP in the peer namespace of the machine's network.
func (b *bench) xdpDevice(t *testing.T) (d *xdp.Device) {
	t.Helper()
	err := b.net.Peer.Do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interface: vm.PeerLink,
			Options: sockets.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	b.devices = append(b.devices, d)
	return d
}

// device opens a device over the given transport in the peer namespace of the machine's network.
func (b *bench) device(t *testing.T, transport string) *sockets.Device {
	t.Helper()
	if transport == "xdp" {
		return b.xdpDevice(t).Device
	}
	d, err := sockets.Open(sockets.Config{
		Options: sockets.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
		Dial:    b.net.Peer.Dial,
		Listen:  b.net.Peer.Listen,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// explain logs the state of the machine's network and the counters of xwarp's devices.
func (b *bench) explain(t *testing.T) {
	t.Helper()
	t.Log(b.vm.NetworkState())
	for _, d := range b.devices {
		s, err := d.Stats()
		t.Logf("our device: %+v %v", s, err)
	}
}

var nextPort atomic.Uint32

// port returns a port that no other test uses, so that remains of earlier connections cannot disturb the test.
func port() uint16 { return uint16(17000 + nextPort.Add(1)) }

// captured runs f while tcpdump captures the traffic of port on the machine's link. Both decoders then check the
// capture, in which exactly the given opcodes must occur. It returns the decoded connections.
func (b *bench) captured(t *testing.T, port uint16, f func() error, opcodes ...string) []*session {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "link.pcap")
	c, err := b.net.Capture(file, fmt.Sprintf("tcp port %d", port))
	if err != nil {
		t.Fatal(err)
	}
	err = f()
	if err := errors.Join(err, c.Stop()); err != nil {
		b.explain(t)
		keep(t, file)
		t.Fatal(err)
	}
	if err := judge(file, filepath.Join(dir, "recut.pcap"), opcodes...); err != nil {
		keep(t, file)
		t.Fatal(err)
	}
	list, err := readCapture(file)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// keep moves the capture of a failed test to the directory for temporary files.
func keep(t *testing.T, file string) {
	to := filepath.Join(os.TempDir(), "interop-"+
		strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())+".pcap")
	if err := os.Rename(file, to); err == nil {
		t.Logf("the capture is kept as %s", to)
	}
}

// ping is one run of unmodified rping in the machine against package rping over xwarp.
type ping struct {
	transport   string // transport of xwarp's device
	ours        string // the side of xwarp: "client" or "server"
	v6, noCRC   bool
	size, count int
}

func (p ping) String() string {
	return fmt.Sprintf("%s %s, IPv%d, %d bytes, CRC %s", p.transport, p.ours,
		map[bool]int{false: 4, true: 6}[p.v6], p.size, map[bool]string{false: "on",
			true: "off"}[p.noCRC])
}

func (p ping) run(b *bench, d verbs.Device, port uint16) (res rping.Result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	mpa := verbs.MPAWith(true, !p.noCRC)
	cfg := rping.Config{Size: p.size, Count: p.count,
		Conn: verbs.DialConfig{MPA: &mpa}}
	ours, theirs, any6 := vm.PeerAddr4, b.vm.Addr4, ""
	if p.v6 {
		ours, theirs, any6 = vm.PeerAddr6, b.vm.Addr6, " -a ::0"
	}
	if p.ours == "client" {
		s, err := b.vm.Spawn(fmt.Sprintf("rping -s -V -S %d -p %d%s", p.size, port, any6))
		if err != nil {
			return res, err
		}
		defer s.Kill()
		if err := b.vm.Listening(port, time.Minute); err != nil {
			return res, err
		}
		if res, err = rping.Client(ctx, d, netip.AddrPortFrom(theirs, port), cfg); err != nil {
			return res, fmt.Errorf("our client: %w; rping -s: %s", err, s.Output())
		}
		return res, pingEnded(s.Wait(time.Minute))(s.Output())
	}
	l, err := d.Listen(netip.AddrPortFrom(ours, port), verbs.ListenConfig{MPA: &mpa})
	if err != nil {
		return res, err
	}
	defer l.Close()
	c, err := b.vm.Spawn(fmt.Sprintf("timeout 580 rping -c -V -C %d -S %d -p %d -a %v", p.count,
		p.size, port, ours))
	if err != nil {
		return res, err
	}
	defer c.Kill()
	if res, err = rping.Serve(ctx, d, l); err != nil {
		return res, fmt.Errorf("our server: %w; rping -c: %s", err, c.Output())
	}
	return res, pingEnded(c.Wait(time.Minute))(c.Output())
}

// ended returns a function that makes an error of a program's output unless its exit code is 0 and the output reports
// no mismatch.
func ended(code int, err error) func(output string) error {
	return func(output string) error {
		if err == nil && code == 0 && !strings.Contains(output, "mismatch") {
			return nil
		}
		return fmt.Errorf("rping: exit code %d, %v\n%s", code, err, output)
	}
}

// pingEnded is ended for rping, some of whose failing exit codes vm.PingCode excuses. The capture shows whether rping
// did its work.
func pingEnded(code int, err error) func(output string) error {
	return func(output string) error { return ended(vm.PingCode(code, output), err)(output) }
}

// TestRping runs unmodified rping in the machine against package rping over xwarp, as client and as server.
//
//req:rfc5044-4.4-3
func TestRping(t *testing.T) {
	b := need(t, vm.Siw{})
	var runs []ping
	for _, ours := range []string{"client", "server"} {
		for _, size := range []int{64, 4096, rping.MaxSize} {
			for _, v6 := range []bool{false, true} {
				for _, noCRC := range []bool{false, true} {
					runs = append(runs, ping{"xdp", ours, v6, noCRC, size, 1000})
				}
			}
			runs = append(runs, ping{"kernel", ours, false, false, size, 100})
		}
	}
	devices := map[string]*sockets.Device{}
	for _, p := range runs {
		t.Run(p.String(), func(t *testing.T) {
			d := devices[p.transport]
			if d == nil {
				d = b.device(b.t, p.transport)
				devices[p.transport] = d
			}
			port := port()
			var res rping.Result
			list := b.captured(t, port, func() (err error) {
				res, err = p.run(b, d, port)
				return err
			}, "Write", "Read Request", "Read Response", "Send")
			if res.Iterations != p.count || res.CRC == p.noCRC || res.MarkersIn ||
				res.MarkersOut {
				t.Errorf("%+v", res)
			}
			s := list[len(list)-1]
			if err := s.pinged(p.count, p.size); err != nil {
				t.Error(err)
			}
			if s.conn.Client.Addr().Is6() != p.v6 {
				t.Errorf("the connection is from %v to %v", s.conn.Client, s.conn.Server)
			}
			right, zero, other := s.sums()
			if p.noCRC && right+other > 0 || !p.noCRC && zero+other > 0 {
				t.Errorf("on the link %d CRCs are right, %d are 0, %d are neither", right, zero,
					other)
			}
		})
	}
}
