package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// XDP actions (linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// bench runs single frames through the program with BPF_PROG_TEST_RUN, on queue 0 of the loopback device.
type bench struct {
	testing.TB
	*Steering
	last Counts
}

// newBench loads the program with the claims of frames_test.go. If socket is true, queue 0 has an AF_XDP socket. The
// socket is not bound, but BPF_PROG_TEST_RUN returns the program's XDP_REDIRECT in any case.
func newBench(t testing.TB, socket bool) *bench {
	t.Helper()
	needs.XDP(t)
	s, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	claim(t, s.VLAN)
	b := &bench{TB: t, Steering: s}
	if socket {
		if err := s.SetSocket(0, newXSK(t)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// claim adds the claims of frames_test.go to a VLAN.
func claim(t testing.TB, v *VLAN) {
	t.Helper()
	for _, l := range []netip.AddrPort{
		at(local4, listenPort), at(local6, listenPort), at(netip.Addr{}, anyPort),
		at(netip.IPv4Unspecified(), any4Port), at(netip.IPv6Unspecified(), any6Port),
	} {
		if err := v.AddListener(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(v.SetMAC([6]byte(localMAC)),
		v.SetLocal(hosts(local4, other4, local6, other6))); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][2]netip.AddrPort{
		{at(local4, flowPort), at(remote4, flowRemote)},
		{at(local6, flowPort), at(remote6, flowRemote)},
	} {
		if err := v.AddFlow(f[0], f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(v.AddSA(remote4, local4, theirSPI), v.AddSA(remote6, local6, theirSPI),
		v.AddSA(local4, remote4, ourSPI),
		v.AddSA(local6, remote6, ourSPI)); err != nil {
		t.Fatal(err)
	}
}

func newXSK(t testing.TB) int {
	t.Helper()
	fd := openXSK(t)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// openXSK is newXSK for a caller that closes the socket itself. The socket has a receive ring, because the map of
// Linux 7.3 refuses sockets without one.
func openXSK(t testing.TB) int {
	t.Helper()
	needs.XSK(t)
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 64); err != nil {
		t.Fatal(err)
	}
	return fd
}

// run returns the action and the outcome of the frame, which must be counted exactly once.
func (b *bench) run(frame []byte) (action uint32, o Outcome) {
	b.Helper()
	action = b.action(frame)
	now, err := b.Counters()
	if err != nil {
		b.Fatal(err)
	}
	o = Outcome(NumOutcomes)
	for i := range now {
		switch now[i] - b.last[i] {
		case 0:
		case 1:
			if o != Outcome(NumOutcomes) {
				b.Fatalf("counted as %s and %s", o, Outcome(i))
			}
			o = Outcome(i)
		default:
			b.Fatalf("counted %d times as %s", now[i]-b.last[i], Outcome(i))
		}
	}
	if o == Outcome(NumOutcomes) {
		b.Fatal("not counted")
	}
	b.last = now
	return action, o
}

func (b *bench) action(frame []byte) uint32 {
	b.Helper()
	action, err := b.objs.XwarpSteer.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		b.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	return action
}

// expect runs a frame and checks its outcome, and the action that belongs to this outcome.
func (b *bench) expect(frame []byte, want Outcome) {
	b.Helper()
	action, o := b.run(frame)
	wantAction := uint32(xdpPass)
	switch {
	case want.Steered():
		wantAction = xdpRedirect
	case want.Dropped():
		wantAction = xdpDrop
	}
	if o != want || action != wantAction {
		b.Errorf("action %d as %s, want action %d as %s\n% x", action, o, wantAction, want, frame)
	}
}

func TestFixtures(t *testing.T) {
	b := newBench(t, true)
	names := map[string]bool{}
	for _, f := range fixtures() {
		if names[f.name] {
			t.Errorf("two fixtures are called %q", f.name)
		}
		names[f.name] = true
		t.Run(f.name, func(t *testing.T) {
			b.TB = t
			b.expect(f.frame, f.want)
		})
	}
	t.Logf("%d fixtures", len(names))
}

// TestNoSocket runs the fixtures without a socket on the queue: nothing may be redirected. Claimed frames are dropped,
// because the kernel would reply with RST, and are counted for the queue.
func TestNoSocket(t *testing.T) {
	b := newBench(t, false)
	var noSocket uint64
	for _, f := range fixtures() {
		want := f.want
		if want.Steered() {
			want = DropNoSocket
			noSocket++
		}
		t.Run(f.name, func(t *testing.T) {
			b.TB = t
			b.expect(f.frame, want)
		})
	}
	got, err := b.NoSocketDrops(0)
	if err != nil {
		t.Fatal(err)
	}
	if got != noSocket || noSocket == 0 {
		t.Errorf("queue 0 counts %d frames without a socket, want %d", got, noSocket)
	}
}

// TestTruncated cuts every steered fixture at every length, long ones at some lengths. The kernel gets all cut frames.
func TestTruncated(t *testing.T) {
	const shortest = 14 // BPF_PROG_TEST_RUN refuses less than an Ethernet header
	b := newBench(t, true)
	for _, f := range fixtures() {
		if !f.want.Steered() || f.padded {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			b.TB = t
			for n := shortest; n < len(f.frame); n++ {
				if len(f.frame) > 2000 && n%97 != 0 && n > 200 {
					continue
				}
				action, o := b.run(f.frame[:n])
				if action != xdpPass || o != PassMalformed {
					t.Fatalf("first %d of %d bytes: action %d as %s, want %d as %s", n,
						len(f.frame), action, o, xdpPass, PassMalformed)
				}
			}
		})
	}
}

// TestClaimsAreExact changes each part of a flow's four-tuple in turn: only the unchanged one matches the flow.
func TestClaimsAreExact(t *testing.T) {
	b := newBench(t, true)
	for _, v6 := range []bool{false, true} {
		local, remote, other := local4, remote4, other4
		if v6 {
			local, remote, other = local6, remote6, other6
		}
		for _, c := range []struct {
			name          string
			local, remote netip.AddrPort
			want          Outcome
		}{
			{"flow", at(local, flowPort), at(remote, flowRemote), Flow},
			{"local address", at(other, flowPort), at(remote, flowRemote), PassNoMatch},
			{"local port", at(local, flowPort+1), at(remote, flowRemote), PassNoMatch},
			{"remote address", at(local, flowPort), at(other, flowRemote), PassNoMatch},
			{"remote port", at(local, flowPort), at(remote, flowRemote+1), PassNoMatch},
			{"ports swapped", at(local, flowRemote), at(remote, flowPort), PassNoMatch},
			{"addresses swapped", at(remote, flowPort), at(local, flowRemote), PassNoMatch},
		} {
			t.Run(fmt.Sprintf("%s v6=%v", c.name, v6), func(t *testing.T) {
				b.TB = t
				seg := tcp(layers.TCPPort(c.remote.Port()), layers.TCPPort(c.local.Port()))
				if v6 {
					b.expect(frame(ether6(), ip6(c.local.Addr(), layers.IPProtocolTCP,
						from6(c.remote.Addr())), seg), c.want)
				} else {
					b.expect(frame(ether4(), ip4(c.local.Addr(), layers.IPProtocolTCP,
						from4(c.remote.Addr())), seg), c.want)
				}
			})
		}
	}
}

func BenchmarkSteer(b *testing.B) {
	run := newBench(b, true)
	for _, f := range fixtures() {
		switch f.name {
		case "flow v4", "flow v6", "listener any v4", "tcp other port", "udp", "arp":
		default:
			continue
		}
		b.Run(f.name, func(b *testing.B) {
			_, perRun, err := run.objs.XwarpSteer.Benchmark(f.frame, max(b.N, 1000), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(perRun.Nanoseconds()), "ns/frame")
		})
	}
}
