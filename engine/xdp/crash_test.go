package xdp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ports"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

const crashEnv = "XWARP_TEST_CRASH_NAMESPACE"

// TestMain runs the victim of TestKilled instead of tests if crashEnv is set. The victim serves iWARP, and exchanges
// blocks with one peer, in the namespace whose path is the value of crashEnv, until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		fmt.Println(victim(path))
		select {}
	}
	os.Exit(m.Run())
}

func victim(path string) error {
	runtime.LockOSThread()
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	if err := netns.Set(ns); err != nil {
		return err
	}
	watch := &blockWatch{}
	watch.mtu.Store(1500)
	dev, err := xdp.Open(xdp.Config{Interface: "eth0", Transmit: xdp.TransmitAuto,
		Wrap: func(_ int, p ring.Port) (ring.Port, error) {
			watch.Port = p
			return watch, nil
		}})
	if err != nil {
		return err
	}
	_, err = dev.Listen(netip.MustParseAddrPort("0.0.0.0:7174"), verbs.ListenConfig{})
	if err != nil {
		return err
	}
	ln, err := dev.ListenStream(netip.MustParseAddrPort("0.0.0.0:7175"), 0, xdp.StreamConfig{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ln.Changed()
	s, err := ln.Accept()
	if err != nil {
		return err
	}
	flood(xdp.NewNetConn(s))
	const enough = 20
	if !within(10*time.Second, func() bool {
		return watch.blocks.Load() >= enough && watch.received.Load() >= enough
	}) {
		return fmt.Errorf("%d blocks sent, %d received", watch.blocks.Load(), watch.received.Load())
	}
	return errors.New("blocks move")
}

// flood writes to c and reads from it until it ends.
func flood(c net.Conn) {
	go io.Copy(io.Discard, c)
	go func() {
		for b := make([]byte, 1<<20); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
}

// TestKilled kills the engine's process while blocks move in both directions. While the process lives, the host stays
// reachable. Afterwards no program is attached, GRO is off as before, and no port is reserved. A peer that sends gets a
// reset from the kernel.
func TestKilled(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	hasGRO := func() bool {
		o, err := tn.B.ReadOffloads(tn.B.Link.Name)
		if err != nil {
			t.Fatal(err)
		}
		return o.GRO == topo.On
	}
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	for round := range 3 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/proc/%d/fd/%d", crashEnv, os.Getpid(),
			tn.B.Fd()))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread() // Pdeathsig follows the thread
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n')
		if line != "ready\n" {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("victim: %q", line)
		}
		if !attached(t, tn.B) {
			t.Error("no program is attached while the engine runs")
		}
		hostAnswers(t, tn)
		if err := tn.B.Do(func() error { _, err := ports.Reserve(at); return err }); err == nil {
			t.Error("the engine's port is not reserved")
		}
		peer, err := tn.A.Dial(t.Context(), netip.AddrPort{}, at)
		if err != nil {
			t.Fatal(err)
		}
		other, err := tn.A.Dial(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(at.Addr(), 7175))
		if err != nil {
			t.Fatal(err)
		}
		flood(other)
		if line, _ := lines.ReadString('\n'); line != "blocks move\n" {
			t.Errorf("victim: %q", line)
		}
		if !hasGRO() {
			t.Error("GRO is off while the engine runs")
		}
		cmd.Process.Kill()
		cmd.Wait()
		other.Close()
		runtime.UnlockOSThread()
		if !eventually(func() bool { return !attached(t, tn.B) && !hasGRO() }) {
			t.Fatalf("round %d: attached %t, GRO on %t after kill -9", round, attached(t, tn.B),
				hasGRO())
		}
		peer.SetDeadline(time.Now().Add(30 * time.Second))
		peer.Write([]byte{0})
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("a sending peer gets %v, want a reset", err)
		}
		peer.Close()
		if err := tn.B.Do(func() error {
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
			if err == nil {
				l.Close()
			}
			return err
		}); err != nil {
			t.Errorf("the port is not free after kill -9: %v", err)
		}
		hostAnswers(t, tn)
	}
}

func eventually(ok func() bool) bool {
	for range 6000 {
		if ok() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func attached(t *testing.T, h *topo.Host) bool {
	t.Helper()
	return programOf(t, h, h.Link.Name) != 0
}

// programOf returns the ID of the XDP program of an interface of a host, or 0.
func programOf(t *testing.T, h *topo.Host, name string) uint32 {
	t.Helper()
	nic, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	x := nic.Attrs().Xdp
	if x == nil || !x.Attached {
		return 0
	}
	if x.ProgId == 0 {
		t.Fatalf("%s has several XDP programs", name)
	}
	return x.ProgId
}

// hostAnswers checks that the kernel of B serves ordinary TCP on another port than the engine's.
func hostAnswers(t *testing.T, tn *topo.Net) {
	t.Helper()
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 2222)
	var ln net.Listener
	if err := tn.B.Do(func() (err error) {
		ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			c.Write([]byte("host"))
			c.Close()
		}
	}()
	err := tn.A.Do(func() error {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err := d.DialContext(context.Background(), "tcp", at.String())
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 4)
		if _, err := c.Read(b); err != nil || string(b) != "host" {
			return fmt.Errorf("read %q: %v", b, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("ordinary TCP to another port: %v", err)
	}
}
