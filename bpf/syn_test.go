package bpf

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/gopacket/layers"
)

// Constants of maps.h.
const (
	openBurst    = 8192
	openInterval = 10_000_000 // nanoseconds
	// openInterval for the limit of repeated SYNs
	againInterval = 500_000
	followMax     = 16
	synBuckets    = 1 << 18
	bucketSYNs    = 4
	synTick       = 1 << 28 // nanoseconds
	synTicksLate  = 3       // ticks by which tests age a SYN; nearly a second
)

// syns is a bench with methods for the limits of listeners.
type syns struct{ *bench }

func newSYNs(t *testing.T) syns {
	s := syns{newBench(t, true)}
	if n := s.objs.RecentSyns.MaxEntries(); n != synBuckets {
		t.Fatalf("SYNs are remembered in %d buckets, want %d", n, synBuckets)
	}
	return s
}

// limit sets the times at which all tokens of the limits are available again: of first SYNs, of repeated SYNs and of
// strays. 0 means long ago.
func (s syns) limit(first, again, stray uint64) {
	s.Helper()
	s.used(steerListenerLimit{Syn: first, RepeatedSyn: again, Stray: stray})
}

func (s syns) used(l steerListenerLimit) {
	s.Helper()
	if err := s.objs.ListenerLimits.Update(uint32(0), &l, ebpf.UpdateAny); err != nil {
		s.Fatal(err)
	}
}

// never is a time so late that no segment passes the limit. Calculations with it do not overflow.
const never = math.MaxUint64 / 2

func (s syns) limits() steerListenerLimit {
	s.Helper()
	var l steerListenerLimit
	if err := s.objs.ListenerLimits.Lookup(uint32(0), &l); err != nil {
		s.Fatal(err)
	}
	return l
}

// syn returns a frame with a SYN of a peer.
func syn(from netip.AddrPort, isn uint32) []byte { return opening(from, isn, "S") }

// opening returns a frame with a segment of a peer to a listener, with IPv4 or IPv6 according to the peer's address.
// number is the sequence number. flags has the letters of tcpdump.
func opening(from netip.AddrPort, number uint32, flags string) []byte {
	h := tcp(layers.TCPPort(from.Port()), listenPort)
	h.Seq, h.ACK, h.SYN = number, strings.Contains(flags, "."), strings.Contains(flags, "S")
	h.RST, h.FIN = strings.Contains(flags, "R"), strings.Contains(flags, "F")
	if from.Addr().Is4() {
		return frame(ether4(), ip4(local4, protoTCP, from4(from.Addr())), h)
	}
	return frame(ether6(), ip6(local6, protoTCP, from6(from.Addr())), h)
}

// slot returns the bucket and the tag under which the program remembers a SYN. It implements the hash of steer.c
// independently.
func slot(from netip.AddrPort, isn uint32) (bucket uint32, mark uint64) {
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
	return uint32(h % synBuckets), h >> 52
}

// age makes the entry of a SYN older by ticks, and reports whether there is an entry.
func (s syns) age(from netip.AddrPort, isn uint32, ticks uint64) (known bool) {
	s.Helper()
	index, mark := slot(from, isn)
	s.bucket(index, func(v uint64) (next uint64) {
		for shift := 0; shift < 64; shift += 16 {
			one := v >> shift & 0xffff
			if one>>4 == mark {
				known = true
				one = mark<<4 | (one-ticks)&0xf
			}
			next |= one << shift
		}
		return next
	})
	return known
}

// crowd adds n other SYNs to the bucket of a SYN, as if they came later.
func (s syns) crowd(from netip.AddrPort, isn uint32, n int) {
	s.Helper()
	index, mark := slot(from, isn)
	s.bucket(index, func(v uint64) uint64 {
		for range n {
			v = v<<16 | (mark^1)<<4
		}
		return v
	})
}

// bucket replaces the value of a bucket of SYNs by the result of change.
func (s syns) bucket(index uint32, change func(uint64) uint64) {
	s.Helper()
	var v uint64
	if err := s.objs.RecentSyns.Lookup(index, &v); err != nil {
		s.Fatal(err)
	}
	if err := s.objs.RecentSyns.Update(index, change(v), ebpf.UpdateAny); err != nil {
		s.Fatal(err)
	}
}

// TestSYNLimit: the limit admits exactly its burst of SYNs. Each new flow returns the token of its SYN.
func TestSYNLimit(t *testing.T) {
	s := newSYNs(t)
	s.expect(syn(at(remote4, 1), 1), Listener)
	first := s.limits().Syn
	s.limit(first+(openBurst-1)*openInterval+1e12, 0, 0) // 1e12: more than the test takes
	s.expect(syn(at(remote4, 1), 2), DropSYN)
	s.limit(never, 0, 0)
	s.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(listenPort)), Listener)
	s.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(unusedPort)), PassNoMatch)
	if l := s.limits(); l.Syn != never || l.RepeatedSyn != 0 {
		t.Errorf("segments of no flow give back: %+v", l)
	}
	for range 3 {
		s.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), Flow)
	}
	if l := s.limits(); l.Syn != never-openInterval || l.RepeatedSyn != 0 {
		t.Errorf("after a new flow the limits are %+v", l)
	}

	// The token bucket has openBurst tokens, and a SYN that takes one advances the time by openInterval.
	s.limit(0, 0, 0)
	s.expect(syn(at(remote4, 1), 3), Listener)
	one := s.limits().Syn
	s.limit(one+1e12, 0, 0) // a thousand seconds more than it holds
	s.expect(syn(at(remote4, 1), 4), DropSYN)
	nearly, begin := one+(openBurst-2)*openInterval, time.Now()
	s.limit(nearly, 0, 0)
	s.expect(syn(at(remote4, 1), 5), Listener)
	if took := s.limits().Syn - nearly; took != openInterval && time.Since(begin) < time.Second {
		t.Errorf("a SYN takes %d ns, want %d", took, openInterval)
	}

	one = s.comesAgain(at(remote4, 2), 0)
	nearly, begin = one+(openBurst-2)*againInterval, time.Now()
	if took := s.comesAgain(at(remote4, 3), nearly) - nearly; took != againInterval &&
		time.Since(begin) < time.Second {
		t.Errorf("a repeated SYN takes %d ns, want %d", took, againInterval)
	}
}

// comesAgain makes a SYN pass because it is repeated, and returns the new state of the limit of repeated SYNs. used is
// the state before.
func (s syns) comesAgain(peer netip.AddrPort, used uint64) uint64 {
	s.Helper()
	s.limit(never, used, 0)
	s.expect(syn(peer, 1), DropSYN)
	s.age(peer, 1, synTicksLate)
	s.expect(syn(peer, 1), Listener)
	return s.limits().RepeatedSyn
}

// TestRepeatedSYN: while a flood uses up the limit, a SYN passes if it is repeated after the time of a peer's
// retransmission timer. The test also compares the program's hash with slot, for peers of both families.
func TestRepeatedSYN(t *testing.T) {
	s := newSYNs(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a := from4Random(r)
		if r.IntN(2) == 0 {
			a = from6Random(r)
		}
		peer, isn := at(a, uint16(1+r.IntN(65535))), r.Uint32()
		s.limit(never, 0, 0)
		first := time.Now()
		s.expect(syn(peer, isn), DropSYN)
		s.copied(syn(peer, isn), first)
		if !s.age(peer, isn, synTicksLate) {
			t.Fatalf("%v, %d is not where it should be", peer, isn)
		}
		s.expect(syn(peer, isn+1), DropSYN) // another connection
		switch r.IntN(3) {
		case 0:
			s.limit(never, never, 0)
			s.expect(syn(peer, isn), DropSYN) // repeated SYNs are limited too
			s.limit(never, 0, 0)
		case 1:
			s.crowd(peer, isn, bucketSYNs)
			s.expect(syn(peer, isn), DropSYN) // it was forgotten, and is remembered again now
			s.age(peer, isn, synTicksLate)
		case 2:
			s.crowd(peer, isn, bucketSYNs-1)
		}
		again := time.Now()
		s.expect(syn(peer, isn), Listener)
		s.copied(syn(peer, isn), again)
	}
}

// TestSYNOfFlow: a SYN from the peer of a flow goes to the flow, so that a rebooted peer can reconnect. During a flood
// of SYNs to the listener, it passes only if it is repeated.
func TestSYNOfFlow(t *testing.T) {
	s := newSYNs(t)
	peer := at(remote4, 77)
	if err := s.AddFlow(at(local4, listenPort), peer); err != nil {
		t.Fatal(err)
	}
	s.expect(syn(peer, 1), Flow)
	s.limit(never, 0, 0)
	s.expect(opening(peer, 2, "."), Flow)
	s.expect(syn(peer, 2), DropSYN)
	s.age(peer, 2, synTicksLate)
	s.expect(syn(peer, 2), Flow)
	dialled := flowSegment()
	dialled.SYN = true
	dialled.ACK = false
	s.expect(frame(ether4(), ip4(local4, protoTCP), dialled), Flow) // no listener at that port
}

// TestDialledFlow: a flow that begins with a peer's SYN-ACK takes no token of the limit of SYNs, and returns none.
func TestDialledFlow(t *testing.T) {
	s := newSYNs(t)
	s.limit(never, 0, 0)
	answer := flowSegment()
	answer.SYN = true
	s.expect(frame(ether4(), ip4(local4, protoTCP), answer), Flow)
	s.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), Flow)
	if l := s.limits(); l.Syn != never {
		t.Errorf("it leaves %+v", l)
	}
}

// TestStrays: segments to a listener without an earlier SYN, and ICMP errors about such segments, have a limit of their
// own. After an admitted SYN, followMax segments of its peer are not subject to it.
func TestStrays(t *testing.T) {
	for _, peer := range []netip.AddrPort{at(remote4, 77), at(remote6, 77)} {
		s := newSYNs(t)
		about := func() []byte {
			if peer.Addr().Is6() {
				return icmp6(1, 0, sent6(at(local6, listenPort), peer))
			}
			return icmp4(3, 1, sent4(at(local4, listenPort), peer))
		}
		one := func(flags string) []byte { return opening(peer, 7, flags) }
		strays := []string{".", "R", "F.", "", "S.", "SR"}
		for _, flags := range strays {
			s.expect(one(flags), Listener)
		}
		s.limit(0, 0, never)
		for _, flags := range strays {
			s.expect(one(flags), DropStray)
		}
		s.expect(syn(peer, 1), Listener)
		s.used(steerListenerLimit{FollowUp: never, Stray: never})
		s.expect(one("."), DropStray) // following segments have a limit too; this was one of them
		s.limit(0, 0, never)
		for range followMax - 1 {
			s.expect(one("."), Listener)
		}
		s.expect(one("."), DropStray)
		s.limit(never, 0, never)
		s.expect(syn(peer, 2), DropSYN)
		s.expect(one("."), DropStray) // a dropped SYN admits no segments
		s.age(peer, 2, synTicksLate)
		s.expect(syn(peer, 2), Listener)
		s.expect(one("."), Listener)
		other := netip.AddrPortFrom(peer.Addr(), peer.Port()+1)
		s.expect(opening(other, 7, "."), DropStray)
		s.expect(about(), DropStray)
		s.limit(0, 0, 0)
		s.expect(about(), ICMP)
		if l := s.limits(); l.Stray == 0 || l.Syn != 0 {
			t.Errorf("an ICMP error leaves %+v", l)
		}
	}
}

// copied runs a SYN again that was run at the time before. It must be dropped as a copy, unless this machine was so
// slow that the copy counts as a repetition.
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
