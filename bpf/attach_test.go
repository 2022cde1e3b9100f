package bpf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary the child of TestKilledProcessDetaches, which attaches to the interface with that
// index.
const childEnv = "XWARP_BPF_TEST_ATTACH"

func TestMain(m *testing.M) {
	if index := os.Getenv(childEnv); index != "" {
		fmt.Println(holdAttached(index))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// holdAttached attaches the program, prints "attached" and waits to be killed.
func holdAttached(index string) error {
	ifindex, err := strconv.Atoi(index)
	if err != nil {
		return err
	}
	s, err := Load(Options{})
	if err != nil {
		return err
	}
	if _, err := s.Attach(ifindex, ModeNative); err != nil {
		return err
	}
	fmt.Println("attached")
	_, err = io.Copy(io.Discard, os.Stdin) // ends if the parent exits first
	return errors.Join(err, errors.New("the parent has gone"))
}

// TestKilledProcessDetaches: the program of a killed process, which cannot clean up, is detached.
func TestKilledProcessDetaches(t *testing.T) {
	l := newLab(t)
	for range 3 {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), childEnv+"="+strconv.Itoa(l.ifindex()))
		stdin, err := child.StdinPipe()
		l.must(err)
		stdout, err := child.StdoutPipe()
		l.must(err)
		child.Stderr = os.Stderr
		l.must(child.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if line != "attached\n" || l.attached() == 0 {
			t.Errorf("child says %q %v, program %d", line, err, l.attached())
		}
		l.must(child.Process.Kill())
		state, err := child.Process.Wait()
		l.must(err)
		stdin.Close()
		if ws, ok := state.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("child ended with %v, not by SIGKILL", state)
		}
		// The kernel may finish releasing the link just after it reports the death.
		for end := time.Now().Add(5 * time.Second); l.attached() != 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("program %d is still attached", l.attached())
			}
		}
	}
}

func TestAttachNative(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	if _, ok := s.Attached(); ok {
		t.Error("attached before Attach")
	}
	for _, mode := range []Mode{ModeAuto, ModeNative} {
		att, err := s.Attach(l.ifindex(), mode)
		l.must(err)
		if att.Mode != ModeNative || att.NativeErr != nil || att.Interface != hostName ||
			att.Ifindex != l.ifindex() || att.LinkID == 0 {
			t.Errorf("%s: %+v", mode, att)
		}
		if id := l.attached(); id != att.ProgramID || id == 0 {
			t.Errorf("%s: netlink shows program %d, want %d", mode, id, att.ProgramID)
		}
		if now, ok := s.Attached(); !ok || now != att {
			t.Errorf("%s: Attached() = %+v %v, want %+v", mode, now, ok, att)
		}
		_, err = s.Attach(l.ifindex(), mode)
		wantError(t, err, nil, hostName, "already")
		l.must(s.Detach())
		if id := l.attached(); id != 0 {
			t.Errorf("%s: program %d after Detach", mode, id)
		}
		l.must(s.Detach())
	}
	_, err := s.Attach(4242, ModeAuto)
	wantError(t, err, nil, "4242", "namespace")
	_, err = s.Attach(l.ifindex(), ModeGeneric+1)
	wantError(t, err, nil, "mode(3)")
}

// TestAttachFallback uses the loopback device, whose driver has no native XDP.
func TestAttachFallback(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	lo, err := netlink.LinkByName("lo")
	l.must(err)
	_, err = s.Attach(lo.Attrs().Index, ModeNative)
	wantError(t, err, unix.EOPNOTSUPP, "lo in native mode", "allow generic")
	att, err := s.Attach(lo.Attrs().Index, ModeAuto)
	l.must(err)
	if att.Mode != ModeGeneric || !errors.Is(att.NativeErr, unix.EOPNOTSUPP) {
		t.Errorf("%+v", att)
	}
	l.must(s.Detach())
	att, err = s.Attach(l.ifindex(), ModeGeneric)
	l.must(err)
	if att.Mode != ModeGeneric || att.NativeErr != nil {
		t.Errorf("generic mode requested: %+v", att)
	}
}

// TestAttachQueues: a veth whose peer has more transmit queues than it has receive queues refuses native mode.
func TestAttachQueues(t *testing.T) {
	l := newLab(t, func(v *netlink.Veth) {
		v.NumRxQueues, v.NumTxQueues, v.PeerNumTxQueues = 1, 1, 2
	})
	s := load(t, Options{})
	_, err := s.Attach(l.ifindex(), ModeNative)
	wantError(t, err, unix.ENOSPC, "transmit queues")
}

func TestForeignProgram(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "somebody_else", Type: ebpf.XDP,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	l.must(err)
	defer prog.Close()
	info, err := prog.Info()
	l.must(err)
	id, _ := info.ID()

	byLink := func(flags link.XDPAttachFlags) func() func() {
		return func() func() {
			other, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.ifindex(),
				Flags: flags})
			l.must(err)
			return func() { l.must(other.Close()) }
		}
	}
	for _, c := range []struct {
		name   string
		mode   Mode
		attach func() (detach func())
	}{
		{"link native", ModeNative, byLink(link.XDPDriverMode)},
		{"link generic", ModeGeneric, byLink(link.XDPGenericMode)},
		{"netlink", ModeNative, func() func() {
			l.must(netlink.LinkSetXdpFdWithFlags(l.host, prog.FD(), int(link.XDPDriverMode)))
			return func() {
				l.must(netlink.LinkSetXdpFdWithFlags(l.host, -1, int(link.XDPDriverMode)))
			}
		}},
	} {
		detach := c.attach()
		for _, mode := range []Mode{ModeAuto, ModeNative, ModeGeneric} {
			_, err := s.Attach(l.ifindex(), mode)
			foreign, ok := errors.AsType[*ForeignProgramError](err)
			if !ok {
				t.Errorf("%s, %s: %v", c.name, mode, err)
				continue
			}
			want := ForeignProgramError{Interface: hostName, Ifindex: l.ifindex(), ID: uint32(id),
				Name: "somebody_else", Mode: c.mode}
			if *foreign != want {
				t.Errorf("%s, %s: %+v, want %+v", c.name, mode, *foreign, want)
			}
			wantError(t, err, nil, "somebody_else", fmt.Sprintf("id %d", id), hostName)
		}
		if got := l.attached(); got != uint32(id) {
			t.Errorf("%s: program %d is attached now, want %d", c.name, got, id)
		}
		detach()
	}

	// If the other program is that of another xwarp process, the error says so.
	other := load(t, Options{})
	_, err = other.Attach(l.ifindex(), ModeAuto)
	l.must(err)
	_, err = s.Attach(l.ifindex(), ModeAuto)
	wantError(t, err, nil, programName, "another xwarp")
}

// TestInterfaceGone: the kernel removes the attachment with the interface.
func TestInterfaceGone(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	_, err := s.Attach(l.ifindex(), ModeNative)
	l.must(err)
	l.must(netlink.LinkDel(l.host))
	if att, ok := s.Attached(); ok {
		t.Errorf("attached to %+v", att)
	}
	l.must(s.Detach())
}

// TestRights: Load needs exactly the three capabilities that its errors name. Afterwards Attach, AddListener,
// RemoveListener, SetSocket, Counters and Close need none, so that a daemon can drop them all.
func TestRights(t *testing.T) {
	l := newLab(t)
	xsk := newXSK(t)
	// Only this thread loses capabilities, and it ends with the test.
	limit := func(caps ...int) {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		l.must(unix.Capget(&hdr, &data[0]))
		data[0].Effective, data[1].Effective = 0, 0
		for _, c := range caps {
			data[c/32].Effective |= 1 << (c % 32)
		}
		l.must(unix.Capset(&hdr, &data[0]))
	}
	for _, caps := range [][]int{nil, {unix.CAP_BPF, unix.CAP_PERFMON},
		{unix.CAP_NET_ADMIN, unix.CAP_PERFMON}, {unix.CAP_BPF, unix.CAP_NET_ADMIN}} {
		limit(caps...)
		s, err := Load(Options{})
		if err == nil {
			s.Close()
			t.Fatalf("loaded with capabilities %v", caps)
		}
		wantError(t, err, nil, "CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON")
	}
	limit(unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON)
	s, err := Load(Options{})
	l.must(err)
	limit()
	_, err = s.Attach(l.ifindex(), ModeNative)
	l.must(err)
	l.must(s.AddListener(at(local4, listenPort)))
	l.must(s.RemoveListener(at(local4, listenPort)))
	l.must(s.SetSocket(0, xsk))
	_, err = s.Counters()
	l.must(err)
	l.must(s.Close())
	if id := l.attached(); id != 0 {
		t.Errorf("program %d after Close", id)
	}
}

// TestQueues: a claimed frame is redirected only if the queue on which it arrives has a socket. Drops are counted by
// queue.
func TestQueues(t *testing.T) {
	l := newLab(t, func(v *netlink.Veth) {
		v.NumRxQueues, v.NumTxQueues, v.PeerNumRxQueues, v.PeerNumTxQueues = 2, 2, 2, 2
	})
	b := newBench(t, true)
	_, err := b.Attach(l.ifindex(), ModeNative)
	l.must(err)
	l.must(b.SetMAC([6]byte(localMAC)))
	seg := frame(ether4(), ip4(local4, protoTCP), flowSegment())
	run := func(queue uint32) uint32 {
		t.Helper()
		ctx := make([]byte, 24) // struct xdp_md
		binary.NativeEndian.PutUint32(ctx[4:], uint32(len(seg)))
		binary.NativeEndian.PutUint32(ctx[12:], uint32(l.ifindex()))
		binary.NativeEndian.PutUint32(ctx[16:], queue)
		action, err := b.objs.XwarpSteer.Run(&ebpf.RunOptions{Data: seg, Context: ctx})
		l.must(err)
		return action
	}
	if got := []uint32{run(0), run(1), run(1)}; !slices.Equal(got, []uint32{xdpRedirect, xdpDrop,
		xdpDrop}) {
		t.Errorf("actions %v on queues 0, 1, 1", got)
	}
	for queue, want := range []uint64{0, 2, 0} {
		if n, err := b.NoSocketDrops(queue); err != nil || n != want {
			t.Errorf("queue %d: %d frames without a socket, want %d (%v)", queue, n, want, err)
		}
	}
}

// TestHostStaysReachable: ping and a TCP connection to another port work while the program is attached. The kernel does
// not answer for a claimed port, even if the queue has no socket.
func TestHostStaysReachable(t *testing.T) {
	l := newLab(t)
	for _, mode := range []Mode{ModeNative, ModeGeneric} {
		b := newBench(t, false)
		l.must(b.SetSocket(0, newXSK(t)))
		_, err := b.Attach(l.ifindex(), mode)
		l.must(err)
		if err := l.ping(); err != nil {
			t.Errorf("%s: ping: %v", mode, err)
		}
		if err := l.echoTCP(unusedPort); err != nil {
			t.Errorf("%s: TCP: %v", mode, err)
		}
		c, err := b.Counters()
		l.must(err)
		if c[PassNotIP] == 0 && mode == ModeNative || c[PassNotTCP] == 0 || c[PassNoMatch] == 0 {
			t.Errorf("%s: the program was not on the way: %v", mode, c)
		}
		l.must(b.RemoveSocket(0))
		if err := l.refused(unusedPort); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: TCP to a port without a listener: %v", mode, err)
		}
		if timeout, ok := errors.AsType[net.Error](l.refused(listenPort)); !ok ||
			!timeout.Timeout() {
			t.Errorf("%s: the kernel answers for a claimed port without socket: %v", mode, timeout)
		}
		c, err = b.Counters()
		l.must(err)
		for o := range c {
			if Outcome(o).Steered() && c[o] != 0 {
				t.Errorf("%s: %d frames as %s", mode, c[o], Outcome(o))
			}
		}
		if c[DropNoSocket] == 0 {
			t.Errorf("%s: the segments for a port without socket are not counted", mode)
		}
		l.must(b.Detach())
	}
}

// refused connects from the peer's kernel to a port of the host, and returns the error. It waits at most 300 ms.
func (l *lab) refused(port int) (err error) {
	l.inPeer(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", net.JoinHostPort(hostAddr, strconv.Itoa(port)),
			300*time.Millisecond); err == nil {
			c.Close()
		}
	})
	return err
}

// echoTCP sends a text from the peer's kernel to the host's kernel and back, over TCP.
func (l *lab) echoTCP(port int) error {
	addr := net.JoinHostPort(hostAddr, strconv.Itoa(port))
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	var c net.Conn
	l.inPeer(func() { c, err = net.DialTimeout("tcp", addr, 5*time.Second) })
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	text := strings.Repeat("the kernel keeps its own. ", 4000)
	go func() {
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err == nil && string(got) != text {
		err = fmt.Errorf("%d bytes came back of %d", len(got), len(text))
	}
	return err
}

// TestAttachHint: the error for a refused native mode must say whether the MTU is the reason. vmxnet3 returns
// EOPNOTSUPP above its limit, like a driver without native mode.
func TestAttachHint(t *testing.T) {
	for _, c := range []struct {
		err  error
		mtu  int
		says string
		not  string
	}{
		{unix.EOPNOTSUPP, 1500, "no native XDP: allow generic", "MTU"},
		{unix.EOPNOTSUPP, 9000, "none at MTU 9000: vmxnet3", ""},
		{unix.EINVAL, 9000, "MTU 9000", ""},
		{unix.ERANGE, 3600, "MTU of 3600", ""},
	} {
		err := attachHint(c.err, c.mtu)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || c.not != "" &&
			strings.Contains(err.Error(), c.not) {
			t.Errorf("%v at MTU %d: %q", c.err, c.mtu, err)
		}
	}
}

// TestBondIsGeneric: native mode is refused on a bond, so that ModeAuto uses generic mode. The kernel would run the
// program on the members of the bond, and sockets of the bond would receive nothing.
func TestBondIsGeneric(t *testing.T) {
	for _, c := range []struct {
		nic     netlink.Link
		refused bool
	}{
		{netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"}), true},
		{&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}, false},
		{&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}, false},
	} {
		err := refuseBond(c.nic)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.nic.Type(), err)
		}
		if err != nil && !genericMayHelp(err) {
			t.Errorf("%s: auto would not fall back after %v", c.nic.Type(), err)
		}
	}
}

// TestUnreadableProgram: if the user may not read the name of the other program, the error says that it may be
// xwarpd's.
func TestUnreadableProgram(t *testing.T) {
	e := &ForeignProgramError{Interface: "eth0", ID: 7, Mode: ModeNative}
	if s := e.Error(); !strings.Contains(s, "xwarpd's: use --transport=daemon") ||
		strings.Contains(s, `""`) || strings.Contains(s, "another owner") {
		t.Error(s)
	}
}

// TestReattach: if another process has detached the program by force, Reattach attaches it again in its mode. It does
// not replace a program that was attached meanwhile. In all other cases it does nothing.
func TestReattach(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	never := func(when string) {
		t.Helper()
		if again, err := s.Reattach(); again || err != nil {
			t.Errorf("%s: attached again: %v, %v", when, again, err)
		}
	}
	force := func() {
		t.Helper()
		att, ok := s.Attached()
		if !ok {
			t.Fatal("not attached")
		}
		k, err := link.NewFromID(link.ID(att.LinkID))
		l.must(err)
		defer k.Close()
		l.must(k.Detach())
	}
	never("before Attach")
	first, err := s.Attach(l.ifindex(), ModeGeneric)
	l.must(err)
	never("while attached")
	force()
	if _, ok := s.Attached(); ok || l.attached() != 0 {
		t.Fatal("the program is still attached")
	}
	again, err := s.Reattach()
	if att, ok := s.Attached(); !again || err != nil || !ok || att.Mode != ModeGeneric ||
		att.ProgramID != first.ProgramID || l.attached() != first.ProgramID {
		t.Errorf("%v, %v: %+v, %v; first %+v", again, err, att, ok, first)
	}

	force()
	other := load(t, Options{})
	_, err = other.Attach(l.ifindex(), ModeNative)
	l.must(err)
	for range 2 {
		_, err = s.Reattach()
		wantError(t, err, nil, programName, hostName)
	}
	l.must(other.Detach())
	if again, err = s.Reattach(); !again || err != nil {
		t.Errorf("without the other program: %v, %v", again, err)
	}
	l.must(s.Detach())
	never("after Detach")
}
