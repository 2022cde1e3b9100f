package bpf

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/gopacket/layers"
)

// What maps.h says.
const (
	synBurst     = 8192
	synInterval  = 500_000
	synsSeen     = 1 << 21
	synTick      = 1 << 28 // nanoseconds
	synTicksLate = 3       // a second later, nearly
	synTicksGone = 29      // later than a repetition comes
)

// syns runs SYNs to a listener.
type syns struct{ *bench }

func newSYNs(t *testing.T) syns {
	s := syns{newBench(t, true)}
	if n := s.objs.SynsSeen.MaxEntries(); n != synsSeen {
		t.Fatalf("%d SYNs are remembered, want %d", n, synsSeen)
	}
	return s
}

// limit says when nothing of the limits is used up any more: 0 for long ago, the largest for never.
func (s syns) limit(first, again uint64) {
	s.Helper()
	l := steerSynLimit{First: first, Again: again}
	if err := s.objs.SynLimits.Update(uint32(0), &l, ebpf.UpdateAny); err != nil {
		s.Fatal(err)
	}
}

// never is so late that nothing is let through, and does not overflow.
const never = math.MaxUint64 / 2

func (s syns) limits() steerSynLimit {
	s.Helper()
	var l steerSynLimit
	if err := s.objs.SynLimits.Lookup(uint32(0), &l); err != nil {
		s.Fatal(err)
	}
	return l
}

// syn is the SYN of a peer. Its frame is of IPv4 or IPv6, as the peer's address is.
func syn(from netip.AddrPort, isn uint32) []byte {
	h := tcp(layers.TCPPort(from.Port()), listenPort)
	h.Seq, h.Ack, h.ACK, h.SYN = isn, 0, false, true
	if from.Addr().Is4() {
		return frame(ether4(), ip4(local4, protoTCP, from4(from.Addr())), h)
	}
	return frame(ether6(), ip6(local6, protoTCP, from6(from.Addr())), h)
}

// slot is where the SYN is remembered, and by what: the hash of steer.c written a second time.
func slot(from netip.AddrPort, isn uint32) (index, mark uint32) {
	const k = 0x9e3779b97f4a7c15
	var in [3]uint64
	a := from.Addr().As16()
	for i := range 4 {
		in[i/2] = in[i/2]<<32 | uint64(binary.NativeEndian.Uint32(a[4*i:]))
	}
	var b [8]byte
	binary.BigEndian.PutUint16(b[:], from.Port())
	binary.BigEndian.PutUint16(b[2:], uint16(listenPort))
	binary.BigEndian.PutUint32(b[4:], isn)
	in[2] = uint64(binary.NativeEndian.Uint16(b[:]))<<48 |
		uint64(binary.NativeEndian.Uint16(b[2:]))<<32 | uint64(binary.NativeEndian.Uint32(b[4:]))
	h := (in[0] + 1) * k
	for _, v := range in[1:] {
		h = (h ^ h>>32 ^ v) * k
	}
	h ^= h >> 32
	return uint32(h % synsSeen), uint32(h >> 40)
}

// age makes what is remembered of a SYN older, and reports whether it is remembered.
func (s syns) age(from netip.AddrPort, isn, ticks uint32) bool {
	s.Helper()
	index, mark := slot(from, isn)
	var v uint32
	if err := s.objs.SynsSeen.Lookup(index, &v); err != nil {
		s.Fatal(err)
	}
	known := v>>8 == mark
	if err := s.objs.SynsSeen.Update(index, v&^0xff|(v-ticks)&0xff, ebpf.UpdateAny); err != nil {
		s.Fatal(err)
	}
	return known
}

// TestSYNLimit: so many SYNs are let through at once and no more, and each ACK without a flow lets in another one.
func TestSYNLimit(t *testing.T) {
	s := newSYNs(t)
	s.expect(syn(at(remote4, 1), 1), Listener)
	first := s.limits().First
	s.limit(first+(synBurst-1)*synInterval+1e12, 0) // the test's own time does not count
	s.expect(syn(at(remote4, 1), 2), DropSYN)
	s.limit(never, 0)
	for range 3 {
		s.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(listenPort)), Listener)
	}
	if l := s.limits(); l.First != never-3*synInterval || l.Again != 0 {
		t.Errorf("three ACKs leave %+v", l)
	}
	s.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), Flow)
	s.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(unusedPort)), PassNoMatch)
	if l := s.limits(); l.First != never-3*synInterval {
		t.Errorf("segments of others give back: %+v", l)
	}
	rst := segmentTo(listenPort)
	rst.ACK, rst.RST = false, true
	s.expect(frame(ether4(), ip4(local4, protoTCP), rst), Listener)

	// The bucket is as deep as it says: taking one moves the time by an interval.
	s.limit(0, 0)
	s.expect(syn(at(remote4, 1), 3), Listener)
	one := s.limits().First
	s.limit(one+1e12, 0) // a thousand seconds more than it holds
	s.expect(syn(at(remote4, 1), 4), DropSYN)
	nearly, begin := one+(synBurst-2)*synInterval, time.Now()
	s.limit(nearly, 0)
	s.expect(syn(at(remote4, 1), 5), Listener)
	if took := s.limits().First - nearly; took != synInterval && time.Since(begin) < time.Second {
		t.Errorf("a SYN takes %d ns, want %d", took, synInterval)
	}
}

// TestSYNAgain: while a flood takes all there is, a SYN is let through when it comes again as late as a peer's timer
// sends it. The hash is checked against the one here, for peers of both families.
func TestSYNAgain(t *testing.T) {
	s := newSYNs(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a := from4Random(r)
		if r.IntN(2) == 0 {
			a = from6Random(r)
		}
		peer, isn := at(a, uint16(1+r.IntN(65535))), r.Uint32()
		s.limit(never, 0)
		first := time.Now()
		s.expect(syn(peer, isn), DropSYN)
		s.copied(syn(peer, isn), first)
		if !s.age(peer, isn, synTicksLate) {
			t.Fatalf("%v, %d is not where it should be", peer, isn)
		}
		s.expect(syn(peer, isn+1), DropSYN) // another connection
		switch r.IntN(3) {
		case 0:
			s.limit(never, never)
			s.expect(syn(peer, isn), DropSYN) // those have a limit too
			s.limit(never, 0)
		case 1:
			s.age(peer, isn, synTicksGone-synTicksLate)
			s.expect(syn(peer, isn), DropSYN) // forgotten, and remembered anew
			s.age(peer, isn, synTicksLate)
		}
		again := time.Now()
		s.expect(syn(peer, isn), Listener)
		s.copied(syn(peer, isn), again)
	}
}

// copied runs a SYN that was there before, which is dropped unless this machine took so long that it is a repetition.
func (s syns) copied(frame []byte, before time.Time) {
	s.Helper()
	if _, o := s.run(frame); o != DropSYN && time.Since(before) < synTick {
		s.Errorf("a copy is %s", o)
	}
}

func from4Random(r *rand.Rand) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], r.Uint32())
	return netip.AddrFrom4(b)
}

func from6Random(r *rand.Rand) netip.Addr {
	b := remote6.As16()
	binary.BigEndian.PutUint64(b[8:], r.Uint64())
	return netip.AddrFrom16(b)
}
