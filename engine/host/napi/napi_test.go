package napi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// holderEnv is an environment variable that names a NAPI instance or an offload. It makes the test program change the
// settings, and hold them until its input ends.
const holderEnv = "XWARP_TEST_NAPI"

var held = ring.NAPI{DeferHardIRQs: 3, GROFlushTimeout: 123456}

func TestMain(m *testing.M) {
	if id := os.Getenv(holderEnv); id != "" {
		os.Exit(hold(id))
	}
	os.Exit(m.Run())
}

func hold(id string) int {
	n, ifindex, feature, on := held, 0, "", false
	var r Restorer
	var err error
	if read, _ := fmt.Sscanf(id, "offload %d %s %t", &ifindex, &feature, &on); read == 3 {
		err = r.SetFeature(ifindex, feature, on)
	} else {
		var before ring.NAPI
		fmt.Sscan(id, &n.ID, &ifindex)
		if before, err = ring.QueryNAPI(n.ID); err == nil {
			err = r.Change(ifindex, before, n)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held", r.process.Process.Pid)
	io.Copy(io.Discard, os.Stdin)
	if err := r.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// TestRestored: however a program ends, its NAPI instance gets its previous settings back. If a killed program left the
// same settings, the instance gets zeros.
func TestRestored(t *testing.T) {
	needs.NetNS(t)
	n, err := topo.New(topo.Options{ // a veth has a NAPI instance if it has GRO and its peer has no TSO
		OffloadsA: topo.Offloads{GRO: topo.On}, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	id := instance(t, n)
	for _, c := range []struct {
		name   string
		before ring.NAPI
		end    func(t *testing.T, holder, restorer int, stdin io.Closer)
	}{
		{name: "closed", end: func(_ *testing.T, _, _ int, in io.Closer) { in.Close() }},
		{name: "killed", end: kill},
		{name: "process group killed", end: func(_ *testing.T, pid, _ int, _ io.Closer) {
			unix.Kill(-pid, unix.SIGKILL)
		}},
		{name: "signals for all, then killed", end: func(t *testing.T, pid, restorer int,
			in io.Closer) {
			for _, s := range []unix.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGTERM} {
				unix.Kill(restorer, s)
			}
			time.Sleep(50 * time.Millisecond)
			if err := unix.Kill(restorer, 0); err != nil {
				t.Errorf("a signal ended the restoring process: %v", err)
			}
			kill(t, pid, restorer, in)
		}},
		{name: "restoring process killed, then closed",
			end: func(_ *testing.T, _, restorer int, in io.Closer) {
				unix.Kill(restorer, unix.SIGKILL)
				in.Close()
			}},
		{name: "left by processes that were killed together", before: held,
			end: func(_ *testing.T, _, _ int, in io.Closer) { in.Close() }},
		{name: "other values", before: ring.NAPI{DeferHardIRQs: 1, GROFlushTimeout: 20000,
			IRQSuspendTimeout: 7},
			end: kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.before
			want.ID = id
			if err := n.A.Do(func() error { return ring.SetNAPI(want) }); err != nil {
				t.Fatal(err)
			}
			if c.before == held {
				want = ring.NAPI{ID: id}
			}
			pid, restorer, in := start(t, n, fmt.Sprint(id, " ", n.A.Link.Index))
			now := held
			now.ID = id
			if got := query(t, n, id); got != now {
				t.Fatalf("held: %+v, want %+v", got, now)
			}
			const netAdmin = "CapPrm:\t0000000000001000\nCapEff:\t0000000000001000\n"
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", restorer))
			if err != nil || !strings.Contains(string(status), netAdmin) {
				t.Errorf("the restoring process has more than CAP_NET_ADMIN: %v\n%s", err, status)
			}
			c.end(t, pid, restorer, in)
			deadline := time.Now().Add(20 * time.Second)
			for query(t, n, id) != want && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if got := query(t, n, id); got != want {
				t.Errorf("afterwards: %+v, want %+v", got, want)
			}
		})
	}
}

// TestRestoredAfterRestart: the restoring process waits for a NAPI instance that a driver deletes and adds again. It
// does not wait for the instance of an interface that is gone.
func TestRestoredAfterRestart(t *testing.T) {
	const lo, none = 1, 1 << 30
	want := ring.NAPI{ID: 8193, DeferHardIRQs: 5}
	for ifindex, tries := range map[int]int{lo: 4, none: 1} {
		input, err := json.Marshal(setting{NAPI: want, Ifindex: ifindex})
		if err != nil {
			t.Fatal(err)
		}
		var calls int
		err = restoreFrom(bytes.NewReader(input), func(n ring.NAPI) error {
			if calls++; n != want {
				t.Errorf("restored: %+v, want %+v", n, want)
			}
			if calls < 4 {
				return fmt.Errorf("NAPI: %w", unix.ENOENT)
			}
			return nil
		})
		if err != nil || calls != tries {
			t.Errorf("interface %d: %d calls and %v, want %d", ifindex, calls, err, tries)
		}
	}
}

func kill(_ *testing.T, pid, _ int, _ io.Closer) { unix.Kill(pid, unix.SIGKILL) }

// start starts a program in host A that holds what, which has the form of holderEnv.
func start(t *testing.T, n *topo.Net, what string) (pid, restorer int, in io.Closer) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderEnv+"="+what)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.A.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close(); c.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscanf(line, "held %d", &restorer); err != nil {
		t.Fatalf("the program printed %q", strings.TrimSpace(line))
	}
	return c.Process.Pid, restorer, pipe
}

func query(t *testing.T, n *topo.Net, id uint32) (s ring.NAPI) {
	t.Helper()
	err := n.A.Do(func() (err error) {
		s, err = ring.QueryNAPI(id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance returns the NAPI instance of host A's interface, which it reads from a socket that received a datagram.
func instance(t *testing.T, n *topo.Net) (id uint32) {
	t.Helper()
	var to, from net.PacketConn
	err := n.A.Do(func() (err error) {
		to, err = net.ListenPacket("udp4", net.JoinHostPort(n.A.Addr4.Addr().String(), "9"))
		return err
	})
	if err == nil {
		err = n.B.Do(func() (err error) {
			from, err = net.ListenPacket("udp4", net.JoinHostPort(n.B.Addr4.Addr().String(), "0"))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	defer from.Close()
	raw, err := to.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	to.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = from.WriteTo([]byte("x"), to.LocalAddr())
	if err == nil {
		_, _, err = to.ReadFrom(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		v, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_INCOMING_NAPI_ID)
		id = uint32(v)
	})
	if id == 0 {
		t.Fatal("the datagram arrived without a NAPI ID")
	}
	return id
}

// TestOffloadsRestored: after a process that used an interface, GRO that was off is off again, and VLAN stripping that
// was on is on again. If a process and its restoring process were killed together, this holds after the next process. A
// process that starts while the previous one's setting is being restored keeps its own setting.
func TestOffloadsRestored(t *testing.T) {
	needs.NetNS(t)
	for feature, wants := range map[string]bool{ethtool.GRO: true, ethtool.VLANStripping: false} {
		t.Run(feature, func(t *testing.T) { testOffload(t, feature, wants) })
	}
}

func testOffload(t *testing.T, feature string, wants bool) {
	n, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	what := fmt.Sprintf("offload %d %s %t", n.A.Link.Index, feature, wants)
	isOn := func() (on bool) {
		if err := n.A.Do(func() error {
			f, err := ethtool.Features(n.A.Link.Name)
			on = f[feature].On
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return on
	}
	expect := func(step string, want bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); isOn() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: it is on: %t", step, !want)
			}
		}
	}
	expect("before", !wants)
	_, _, in := start(t, n, what)
	expect("the first process", wants)
	in.Close()
	expect("after it", !wants)

	pid, restorer, _ := start(t, n, what)
	unix.Kill(restorer, unix.SIGKILL)
	unix.Kill(pid, unix.SIGKILL)
	expect("killed with its restoring process", wants)
	_, _, in = start(t, n, what)
	expect("the next process", wants)
	in.Close()
	expect("after the next process", !wants)

	for range 10 {
		pid, _, _ = start(t, n, what)
		unix.Kill(pid, unix.SIGKILL)
		_, _, in = start(t, n, what)
		for range 20 {
			if time.Sleep(5 * time.Millisecond); isOn() != wants {
				t.Fatal("the previous restoring process changed it under the next process")
			}
		}
		in.Close()
		expect("after a quick restart", !wants)
	}
}
