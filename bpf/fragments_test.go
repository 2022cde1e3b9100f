package bpf

import (
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// pieces4 splits an IPv4 datagram with a segment to port into fragments of size bytes.
func pieces4(id uint16, port layers.TCPPort, size int) [][]byte {
	body := serialize(segmentTo(port), payload)
	var out [][]byte
	for off := 0; off < len(body); off += size {
		end := min(off+size, len(body))
		out = append(out, frame(ether4(), ip4(local4, protoTCP, part(id, off, end < len(body))),
			gopacket.Payload(body[off:end])))
	}
	return out
}

// pieces6 does what pieces4 does for IPv6, with a destination options header in the fragmented part.
func pieces6(id uint32, port layers.TCPPort, size int) [][]byte {
	body := slices.Concat(options(protoTCP, 8), serialize(segmentTo(port), payload))
	var out [][]byte
	for off := 0; off < len(body); off += size {
		end := min(off+size, len(body))
		head := fragment6(protoDest, id, off, end < len(body))
		out = append(out, frame(ether6(), ip6(local6, protoFrag), raw(head, body[off:end])))
	}
	return out
}

func TestFragmentsInOrder(t *testing.T) {
	b := newBench(t, true)
	for _, pieces := range [][][]byte{pieces4(datagramID, listenPort, 32),
		pieces6(datagramID, listenPort, 32)} {
		if len(pieces) < 3 {
			t.Fatalf("only %d pieces", len(pieces))
		}
		b.expect(pieces[0], Listener)
		for _, p := range pieces[1:] {
			b.expect(p, Fragment)
		}
		b.expect(pieces[1], Fragment) // a duplicate
	}
}

// TestFragmentsOfESP: the first fragment has the SPI, which decides for the others.
func TestFragmentsOfESP(t *testing.T) {
	b := newBench(t, true)
	const proto = layers.IPProtocolESP
	first := func(id uint16, spi uint32) []byte {
		return frame(ether4(), ip4(local4, proto, part(id, 0, true)), esp(spi))
	}
	later := func(id uint16) []byte {
		return frame(ether4(), ip4(local4, proto, part(id, 64, false)), payload)
	}
	b.expect(later(1), PassFragment)
	b.expect(first(1, ourSPI), ESP)
	b.expect(later(1), Fragment)
	b.expect(first(2, ourSPI+1), PassNotTCP)
	b.expect(later(2), PassFragment)
	b.expect(first(1, ourSPI+1), PassNotTCP) // a new datagram has the identification of an old one
	b.expect(later(1), PassFragment)
	b.expect(frame(ether6(), ip6(local6, protoFrag), raw(fragment6(proto, 9, 0, true),
		esp(ourSPI))), ESP)
	b.expect(frame(ether6(), ip6(local6, protoFrag), raw(fragment6(proto, 9, 64, false), payload)),
		Fragment)
}

// TestFragmentsOutOfOrder: fragments go to the kernel until the first one, which has the ports, has arrived.
func TestFragmentsOutOfOrder(t *testing.T) {
	b := newBench(t, true)
	for _, pieces := range [][][]byte{pieces4(datagramID, listenPort, 32),
		pieces6(datagramID, listenPort, 32)} {
		b.expect(pieces[2], PassFragment)
		b.expect(pieces[0], Listener)
		b.expect(pieces[2], Fragment)
		b.expect(pieces[1], Fragment)
	}
}

func TestFragmentsOfOthers(t *testing.T) {
	b := newBench(t, true)
	for _, pieces := range [][][]byte{pieces4(datagramID, 22, 32), pieces6(datagramID, 22, 32)} {
		b.expect(pieces[0], PassNoMatch)
		for _, p := range pieces[1:] {
			b.expect(p, PassFragment)
		}
	}
}

// TestFragmentIdentity: a later fragment belongs to the datagram of a first one if all fields of the identity are equal
// (RFC 791 3.2, RFC 8200 4.5). Other fields do not matter.
func TestFragmentIdentity(t *testing.T) {
	b := newBench(t, true)
	b.expect(pieces4(1, listenPort, 32)[0], Listener)
	later := func(edit ...func(*layers.IPv4)) []byte {
		edit = append([]func(*layers.IPv4){part(1, 32, true)}, edit...)
		return frame(ether4(), ip4(local4, protoTCP, edit...), payload)
	}
	b.expect(later(), Fragment)
	b.expect(later(part(2, 32, true)), PassFragment)
	b.expect(later(from4(other4)), PassFragment)
	b.expect(later(func(ip *layers.IPv4) { ip.DstIP = other4.AsSlice() }), PassFragment)
	b.expect(later(func(ip *layers.IPv4) { ip.Protocol = layers.IPProtocolUDP }), PassNotTCP)

	b.expect(pieces6(1, listenPort, 32)[0], Listener)
	b.expect(pieces6(2, listenPort, 32)[1], PassFragment)
	// The next header of a later fragment is not part of the identity.
	b.expect(frame(ether6(), ip6(local6, protoFrag), raw(fragment6(protoTCP, 1, 32, false),
		payload)), Fragment)
}

// TestFragmentIDReuse: if a datagram for the kernel has the identification of an earlier one for the engine, all its
// fragments go to the kernel.
func TestFragmentIDReuse(t *testing.T) {
	b := newBench(t, true)
	ours, ssh := pieces4(datagramID, listenPort, 32), pieces4(datagramID, 22, 32)
	b.expect(ours[0], Listener)
	b.expect(ours[1], Fragment)
	b.expect(ssh[0], PassNoMatch)
	b.expect(ssh[1], PassFragment)
	b.expect(ours[0], Listener)
	b.expect(ours[1], Fragment)
	// In IPv6 one identification counts for all protocols.
	v6 := pieces6(datagramID, listenPort, 32)
	b.expect(v6[0], Listener)
	b.expect(v6[1], Fragment)
	b.expect(frame(ether6(), ip6(local6, protoFrag), raw(fragment6(layers.IPProtocolUDP, datagramID,
		0, true), payload)), PassNotTCP)
	b.expect(v6[1], PassFragment)
	// A first fragment too short for ports must also remove the old claim.
	b.expect(patch(slices.Clone(ssh[0]), 16, 0, 17, 36), PassMalformed)
	b.expect(ssh[1], PassFragment)
}

// TestFragmentExpires: the entry of a datagram is valid for 20 s, but not for 31 s. The test changes the age of the
// entry instead of waiting, and checks that the program's clock keeps pace with the real time.
func TestFragmentExpires(t *testing.T) {
	b := newBench(t, true)
	pieces := pieces4(datagramID, listenPort, 32)
	var key steerFragmentKey
	var seen, before uint64
	first := func() {
		b.expect(pieces[0], Listener)
		if it := b.objs.Fragments.Iterate(); !it.Next(&key, &seen) {
			t.Fatalf("no entry: %v", it.Err())
		}
	}
	const ticks = 30 * time.Millisecond // more than two ticks of the maximum length
	begin := time.Now()
	first()
	before = seen
	time.Sleep(10 * ticks)
	first()
	if went, most := time.Duration(seen-before), time.Since(begin)+ticks; went < 9*ticks ||
		went > most {
		t.Fatalf("the program's clock went %v in less than %v", went, most)
	}
	for _, c := range []struct {
		age  time.Duration
		want Outcome
	}{{20 * time.Second, Fragment}, {31 * time.Second, PassFragment}} {
		if err := b.objs.Fragments.Put(key, seen-uint64(c.age)); err != nil {
			t.Fatal(err)
		}
		b.expect(pieces[1], c.want)
	}
}

// TestFragmentsWithoutSocket: fragments of a claimed segment do not go to the kernel either.
func TestFragmentsWithoutSocket(t *testing.T) {
	b := newBench(t, false)
	pieces := pieces4(datagramID, listenPort, 32)
	b.expect(pieces[0], DropNoSocket)
	b.expect(pieces[1], DropNoSocket)
	if err := b.SetSocket(0, newXSK(t)); err != nil {
		t.Fatal(err)
	}
	b.expect(pieces[2], Fragment)
}

// TestFragmentsOfDeniedPeers: later fragments of peers that SetPeers excludes go to the kernel, because the program
// does not remember their datagrams.
func TestFragmentsOfDeniedPeers(t *testing.T) {
	b := newBench(t, true)
	if err := b.SetPeers(hosts(other4)); err != nil {
		t.Fatal(err)
	}
	pieces := pieces4(datagramID, listenPort, 32)
	b.expect(pieces[0], DropPeer)
	b.expect(pieces[1], PassFragment)
}

// TestFragmentsOfStrays: the program does not remember datagrams with segments that exceed the limit of strays.
func TestFragmentsOfStrays(t *testing.T) {
	s := newSYNs(t)
	s.limit(0, 0, never)
	pieces := pieces4(datagramID, listenPort, 32)
	s.expect(pieces[0], DropStray)
	s.expect(pieces[1], PassFragment)
}

// TestFragmentFlood: after a flood of first fragments, the table holds the latest datagram and does not exceed its
// size.
func TestFragmentFlood(t *testing.T) {
	b := newBench(t, true)
	const flood = 20000
	for id := range flood {
		if id%1000 == 0 {
			syns{b}.limit(0, 0, 0) // otherwise most were dropped as strays
		}
		b.action(pieces4(uint16(id), listenPort, 32)[0])
	}
	entries := 0
	var key steerFragmentKey
	var seen uint64
	it := b.objs.Fragments.Iterate()
	for it.Next(&key, &seen) {
		entries++
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if entries == 0 || entries > DefaultMaxFragments {
		t.Errorf("%d entries, want 1 to %d", entries, DefaultMaxFragments)
	}
	if got := b.action(pieces4(flood-1, listenPort, 32)[1]); got != xdpRedirect {
		t.Errorf("the latest datagram was forgotten: action %d", got)
	}
}
