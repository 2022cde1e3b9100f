package bpf

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/gopacket/layers"
)

// tagged inserts VLAN tags after the Ethernet addresses of a frame, the outer one first.
func tagged(frame []byte, tags ...uint32) []byte {
	f := slices.Clone(frame[:12])
	for _, t := range tags {
		f = binary.BigEndian.AppendUint32(f, t)
	}
	return append(f, frame[12:]...)
}

// The tags of the tests: EtherType, priority and identifier.
const (
	vlanOurs    = 0x8100_0064 // 100
	vlanOurs5   = 0x8100_b064 // 100 with priority and drop eligibility
	vlanOther   = 0x8100_0065
	vlanByteRev = 0x8100_0640
	vlanService = 0x88a8_0064
	vlanPrio    = 0x8100_a000
)

// vlanBench loads the program with the claims of frames_test.go in VLAN 100 only.
func vlanBench(t *testing.T) *bench {
	b := newBench(t, true)
	v, err := b.OpenVLAN(100)
	if err != nil {
		t.Fatal(err)
	}
	claim(t, v)
	if err := b.VLAN.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVLAN runs every fixture with VLAN tags. In the VLAN with the claims a fixture has the outcome that it otherwise
// has without a tag. In other VLANs, in nested ones and in a service VLAN it goes to the kernel. So it does without a
// tag, because there are no claims without a VLAN.
func TestVLAN(t *testing.T) {
	b := vlanBench(t)
	for _, f := range fixtures() {
		if binary.BigEndian.Uint16(f.frame[12:]) == uint16(layers.EthernetTypeDot1Q) ||
			binary.BigEndian.Uint16(f.frame[12:]) == uint16(layers.EthernetTypeQinQ) {
			continue // tags of its own
		}
		t.Run(f.name, func(t *testing.T) {
			b := &bench{TB: t, Steering: b.Steering, last: b.last}
			b.limitless()
			for _, tags := range [][]uint32{{vlanOurs}, {vlanOurs5}, {vlanPrio, vlanOurs},
				{vlanOurs, vlanPrio}, {0x88a8_0000, vlanOurs}} {
				b.expect(tagged(f.frame, tags...), f.want)
			}
			for _, tags := range [][]uint32{{vlanOther}, {vlanByteRev}, {0x8100_0fff},
				{vlanService}, {vlanOurs, vlanOurs}, {vlanOurs, vlanOther}, {vlanOther, vlanOurs},
				{vlanService, vlanOurs}, {vlanOurs, vlanService}} {
				b.expect(tagged(f.frame, tags...), PassVLAN)
			}
			for _, frame := range [][]byte{f.frame, tagged(f.frame, vlanPrio)} {
				if action, o := b.run(frame); action != xdpPass || o.Steered() {
					t.Errorf("untagged: action %d as %s", action, o)
				}
			}
		})
		b.last, _ = b.Counters()
	}
}

// limitless makes all tokens of the limits of queue 0 available.
func (b *bench) limitless() {
	b.Helper()
	if err := b.objs.ListenerLimits.Put(uint32(0), steerListenerLimit{}); err != nil {
		b.Fatal(err)
	}
}

// TestFragmentsOfVLANs: a later fragment follows the first one of its own VLAN only, in both IP versions.
func TestFragmentsOfVLANs(t *testing.T) {
	b := vlanBench(t)
	for _, pieces := range [][][]byte{pieces4(datagramID, listenPort, 32),
		pieces6(datagramID, listenPort, 32)} {
		b.expect(tagged(pieces[1], vlanOurs), PassFragment)
		b.expect(tagged(pieces[0], vlanOther), PassVLAN)
		b.expect(tagged(pieces[1], vlanOurs), PassFragment)
		b.expect(tagged(pieces[0], vlanOurs), Listener)
		b.expect(tagged(pieces[1], vlanOurs), Fragment)
		b.expect(tagged(pieces[1], vlanOther), PassVLAN)
		b.expect(pieces[1], PassFragment)
	}
}

// TestVLANsAreApart: each VLAN has its own listeners, addresses, peers, protection and Ethernet address, also for
// cached listeners. Two VLANs can claim the same flow. The frames of a closed VLAN go to the kernel; other VLANs are
// unaffected.
func TestVLANsAreApart(t *testing.T) {
	b := newBench(t, true)
	done := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var vlans []*VLAN
	for _, id := range []uint16{100, 101, MaxVLAN} {
		v, err := b.OpenVLAN(id)
		done(err)
		claim(t, v)
		vlans = append(vlans, v)
	}
	to := func(port layers.TCPPort) []byte {
		return frame(ether4(), ip4(local4, protoTCP), segmentTo(port))
	}
	each := func(f []byte, none, ours, other, last Outcome) {
		t.Helper()
		for range 3 {
			b.limitless()
			b.expect(f, none)
			b.expect(tagged(f, vlanOurs), ours)
			b.expect(tagged(f, vlanOther), other)
			b.expect(tagged(f, 0x8100_0ffe), last)
		}
	}
	flow := frame(ether4(), ip4(local4, protoTCP), flowSegment())
	each(flow, Flow, Flow, Flow, Flow)
	each(to(listenPort), Listener, Listener, Listener, Listener)
	each(to(anyPort), Listener, Listener, Listener, Listener)
	done(vlans[0].RemoveListener(at(local4, listenPort)), vlans[1].SetLocal(hosts(other4)))
	each(to(listenPort), Listener, PassNoMatch, Listener, Listener)
	each(to(anyPort), Listener, Listener, PassNotLocal, Listener)
	done(vlans[0].SetPeers(hosts(other4)), vlans[1].SetPeers(hosts(remote4)))
	each(to(anyPort), Listener, DropPeer, PassNotLocal, Listener)
	each(to(listenPort), Listener, PassNoMatch, Listener, Listener)
	done(vlans[2].SetProtected(map[netip.Prefix]bool{hosts(remote4)[0]: true}))
	each(flow, Flow, Flow, Flow, DropClear)
	done(vlans[1].SetMAC([6]byte(peerMAC)))
	each(to(listenPort), Listener, PassNoMatch, PassOtherMAC, DropClear)
	done(vlans[1].Close())
	each(flow, Flow, Flow, PassVLAN, DropClear)
	done(b.VLAN.Close())
	each(flow, PassOtherMAC, Flow, PassVLAN, DropClear)
	again, err := b.OpenVLAN(101)
	done(err)
	each(to(listenPort), PassOtherMAC, PassNoMatch, PassOtherMAC, DropClear)
	done(again.SetMAC([6]byte(localMAC)))
	each(to(anyPort), PassOtherMAC, DropPeer, PassNoMatch, DropClear) // not a cached listener
	each(flow, PassOtherMAC, Flow, PassNoMatch, DropClear)
	if _, err := b.OpenVLAN(4095); err == nil {
		t.Error("VLAN 4095 exists")
	}
}
