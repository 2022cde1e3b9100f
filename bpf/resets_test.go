package bpf

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// TestHeldResets: only resets that answer claimed segments are dropped.
func TestHeldResets(t *testing.T) {
	b := newBench(t, false)
	reset := func(ls ...gopacket.SerializableLayer) []byte {
		ls[len(ls)-1].(*layers.TCP).RST = true
		return frame(ls...)
	}
	v4 := func(from netip.Addr, edit ...func(*layers.IPv4)) gopacket.SerializableLayer {
		return ip4(remote4, protoTCP, append(edit, from4(from))...)
	}
	v6 := func(from netip.Addr) gopacket.SerializableLayer {
		ip := ip6(remote6, protoTCP)
		ip.SrcIP = addr16(from)
		return ip
	}
	options := func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 39,
			OptionData: make([]byte, 37)}, {OptionType: 0}}
	}
	flow := func() *layers.TCP { return tcp(flowPort, flowRemote) }
	from := func(port layers.TCPPort) *layers.TCP { return tcp(port, 33333) }
	for _, c := range []struct {
		what  string
		frame []byte
		held  bool
	}{
		{"flow, IPv4", reset(ether4(), v4(local4), flow()), true},
		{"flow, IPv4 options", reset(ether4(), v4(local4, options), flow()), true},
		{"flow, IPv6", reset(ether6(), v6(local6), flow()), true},
		{"listener, IPv4", reset(ether4(), v4(local4), from(listenPort)), true},
		{"listener, IPv6", reset(ether6(), v6(local6), from(listenPort)), true},
		{"any address, IPv4", reset(ether4(), v4(other4), from(anyPort)), true},
		{"any address, IPv6", reset(ether6(), v6(other6), from(anyPort)), true},
		{"segment of the flow", frame(ether4(), v4(local4), flow()), false},
		{"flow of another address", reset(ether4(), v4(other4), flow()), false},
		{"another flow of the port", reset(ether4(), v4(local4), from(flowPort)), false},
		{"flow, ports reversed", reset(ether4(), v4(local4), tcp(flowRemote, flowPort)), false},
		{"flow, addresses reversed", reset(ether4(), ip4(local4, protoTCP), flow()), false},
		{"unclaimed, IPv4", reset(ether4(), v4(local4), from(unusedPort)), false},
		{"unclaimed, IPv6", reset(ether6(), v6(local6), from(unusedPort)), false},
		{"any address of another host", reset(ether4(), v4(routed4), from(anyPort)), false},
		{"UDP", frame(ether4(), ip4(remote4, layers.IPProtocolUDP, from4(local4)), flow()), false},
		{"ARP", frame(ether(layers.EthernetTypeARP), payload), false},
		{"in a VLAN", tagged(reset(ether4(), v4(local4), flow()), vlanOurs), false},
	} {
		action, err := b.objs.XwarpHoldReset.Run(&ebpf.RunOptions{Data: c.frame})
		if held := action == tcDrop; err != nil || held != c.held || !held && action != tcNext {
			t.Errorf("%s: action %d, %v", c.what, int32(action), err)
		}
	}
}

// Actions of a program on sent packets (linux/bpf.h).
const (
	tcNext = 1<<32 - 1
	tcDrop = 2
)

// TestHoldResets: while resets are held on an interface, the kernel does not answer segments to claimed ports there.
// Other ports answer.
func TestHoldResets(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	l.must(s.AddListener(netip.MustParseAddrPort("192.0.2.1:7174")))
	l.answers(7174, true)
	l.must(s.HoldResets(l.ifindex()))
	if err := s.HoldResets(l.ifindex()); err == nil {
		t.Error("held twice")
	}
	l.answers(7174, false)
	l.answers(7175, true)
	l.must(s.Detach())
	l.answers(7174, true)
	l.must(s.HoldResets(l.ifindex()))
	l.answers(7174, false)
	l.must(s.Close())
	l.answers(7174, true)
	wantError(t, s.HoldResets(l.ifindex()), ErrClosed)
}

// TestHoldResetsInVLAN: the VLAN counts also if the tag is not in the packet. A program before pushes one, as a VLAN
// does, and one behind pops it.
func TestHoldResetsInVLAN(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	v, err := s.OpenVLAN(5)
	l.must(err)
	l.must(v.AddListener(netip.MustParseAddrPort("192.0.2.1:7174")))
	l.must(s.HoldResets(l.ifindex()))
	l.answers(7174, true)
	const tagType = 0x0081 // 0x8100 in network order, on little-endian machines
	l.onSent(link.Head(), asm.Mov.Imm(asm.R2, tagType), asm.Mov.Imm(asm.R3, 5),
		asm.FnSkbVlanPush.Call())
	l.onSent(link.Tail(), asm.FnSkbVlanPop.Call())
	l.answers(7174, false)
	l.answers(7175, true)
}

// answers checks whether the kernel of the host resets a connection to a port.
func (l *lab) answers(port uint16, want bool) {
	l.t.Helper()
	l.inPeer(func() {
		wait := 5 * time.Second
		if !want {
			wait = 100 * time.Millisecond
		}
		to := net.JoinHostPort(hostAddr, strconv.Itoa(int(port)))
		c, err := net.DialTimeout("tcp", to, wait)
		if err == nil {
			c.Close()
		}
		if errors.Is(err, unix.ECONNREFUSED) != want {
			l.t.Errorf("dial %s: %v", to, err)
		}
	})
}

// onSent runs instructions on the packets that the host sends, before or behind other programs.
func (l *lab) onSent(where link.Anchor, code ...asm.Instruction) {
	l.t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: append(code, asm.Mov.Imm(asm.R0, -1), asm.Return())})
	l.must(err)
	l.t.Cleanup(func() { prog.Close() })
	at, err := link.AttachTCX(link.TCXOptions{Interface: l.ifindex(), Program: prog,
		Attach: ebpf.AttachTCXEgress, Anchor: where})
	l.must(err)
	l.t.Cleanup(func() { at.Close() })
}
