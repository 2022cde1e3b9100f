package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// taker is a scribe that logs the offered data, and sometimes keeps only a part of it.
type taker struct {
	scribe
	t     *testing.T
	kept  *rand.Rand
	wants bool
	log   *[][]byte
	crcs  int
}

func (u *taker) WantsCRC(seq.Num, [][]byte, int) bool { return u.wants }

func (u *taker) Offer(at seq.Num, pieces [][]byte, n int, crc checksum.Known) int {
	b := bytes.Join(pieces, nil)
	if crc.Valid {
		u.crcs++
		if len(b) != n || crc.CRC != crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) {
			u.t.Errorf("%d bytes in %d with CRC %#x", n, len(b), crc.CRC)
		}
	}
	b = b[:n]
	*u.log = append(*u.log, fmt.Appendf(nil, "%d:%x", at, b))
	if u.kept.IntN(50) == 0 {
		n = u.kept.IntN(n + 1)
	}
	return n
}

func (u *taker) Advance(to seq.Num) { *u.log = append(*u.log, fmt.Appendf(nil, "to %d", to)) }

// mangle changes a field of the frame f, whose IP header is at ipAt, and sometimes corrects its checksums.
func mangle(r *rand.Rand, f []byte, ipAt int, v6 bool) []byte {
	h, n := f[ipAt:], ip.Len4
	if v6 {
		n = ip.Len6
	}
	t := h[n:]
	switch r.IntN(16) {
	case 0:
		f[r.IntN(len(f))] ^= 1 << r.IntN(8)
	case 1:
		return append(f, make([]byte, 1+r.IntN(9))...)
	case 2:
		return f[:len(f)-1-r.IntN(min(40, len(f)-1))]
	case 3:
		h[r.IntN(n)] ^= 1 << r.IntN(8)
	case 4:
		t[13] ^= 1 << r.IntN(8)
	case 5:
		t[12] ^= 1 << r.IntN(8)
	case 6:
		binary.BigEndian.PutUint16(t[14:], uint16(r.Uint32()>>r.IntN(17)))
	case 7:
		t[4+r.IntN(8)] ^= 1 << r.IntN(8) // sequence or acknowledgement number
	case 8:
		binary.BigEndian.PutUint32(t[8:], binary.BigEndian.Uint32(t[8:])-uint32(r.IntN(3000))+1500)
	case 9:
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])-uint32(r.IntN(3000))+1500)
	case 10:
		if len(t) >= wire.HeaderLen+wire.TimestampsLen {
			binary.BigEndian.PutUint32(t[24:], binary.BigEndian.Uint32(t[24:])-uint32(r.IntN(20))+
				10)
		}
	case 11:
		if len(t) >= wire.HeaderLen+wire.TimestampsLen {
			t[20+r.IntN(12)] ^= 1 << r.IntN(8)
		}
	case 12:
		h[1] ^= byte(r.IntN(4)) // congestion experienced, or the traffic class
	case 13:
		if !v6 {
			h[6] ^= []byte{0x20, 0x40, 0x80, 1}[r.IntN(4)]
		}
	case 14:
		t[r.IntN(4)] ^= 1 // another port
	case 15:
		h[n-1] ^= 1 // another address
	}
	if r.IntN(8) == 0 {
		return f
	}
	var x ip.Header
	if !v6 {
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:n], 0)))
	}
	if off, err := x.Decode(h); err == nil && x.Proto == ip.ProtoTCP &&
		x.PayloadLen >= wire.HeaderLen {
		t := h[off : off+x.PayloadLen]
		t[16], t[17] = 0, 0
		wire.PutChecksum(t, wire.Finish(wire.Sum(t, x.PseudoSum(len(t)))))
	}
	return f
}

// taken returns all frames of two stacks, and all data passed to the upper layers, while frames are changed, cut and
// lost.
func taken(t *testing.T, seed uint64, full bool) (all [][]byte, crcs int) {
	r := rand.New(rand.NewPCG(seed, 7))
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20, StretchAck: 8,
		NoTimestamps: r.IntN(4) == 0, ECN: tcp.ECNMode(r.IntN(8) & 3), UserTimeout: -1}
	if r.IntN(2) == 0 {
		cfg.ECN = tcp.ECNOff
		cfg.AckDelay = tick.Duration(r.IntN(2)) * 20 * tick.Microsecond
	}
	vlan, v6 := uint16(r.IntN(2)*100), r.IntN(2) == 0
	loss, change := 1+r.IntN(2)*100, 1+r.IntN(3)*20
	var u [2]*taker
	for i := range u {
		u[i] = &taker{scribe: *newScribe(r, true), t: t,
			kept: rand.New(rand.NewPCG(seed, uint64(i))), wants: r.IntN(2) == 0, log: &all}
	}
	p := newPair(t, vlan, v6, cfg, [2]Upper{u[0], u[1]})
	for i := range p.s {
		if full {
			u[i].wants = false
			inFull(p.s[i])
		}
	}
	ipAt := ip.EthernetLen + min(int(vlan), 1)*ip.VLANTagLen
	p.lose = func(from int, f []byte) bool {
		all = append(all, bytes.Clone(f))
		if loss > 1 && r.IntN(loss) == 0 {
			return true
		}
		if change > 1 && r.IntN(change) == 0 {
			f = mangle(r, f, ipAt, v6)
		}
		size := len(f)
		if r.IntN(4) == 0 {
			size = 60 + r.IntN(len(f))
		}
		p.k[1-from].InjectSplit(f, size)
		return true
	}
	for range 120 {
		for i, u := range u {
			if r.IntN(10) == 0 && p.s[i].Len() > 0 {
				u.left += r.IntN(100_000)
				u.e.Schedule()
			}
		}
		p.turn()
		if r.IntN(20) == 0 {
			p.now = p.now.Add(300 * tick.Millisecond)
		}
	}
	for i, u := range u {
		all = append(all, fmt.Appendf(nil, "%+v", p.s[i].Stats()), fmt.Appendf(nil, "%+v %+v",
			u.e.conn.Info(p.now), u.e.conn.Counters()))
		crcs += u.crcs
	}
	return all, crcs
}

// TestExpectedSame: with any faults, the fast paths (expected headers, and checksums verified in one pass) pass the
// same bytes to the upper layers, and produce the same frames, as the slow path.
func TestExpectedSame(t *testing.T) {
	crcs := 0
	for seed := range uint64(100) {
		want, none := taken(t, seed, true)
		got, n := taken(t, seed, false)
		for i := range min(len(want), len(got)) {
			if !bytes.Equal(want[i], got[i]) {
				t.Fatalf("seed %d, entry %d of %d:\n%.200x\nin full:\n%.200x", seed, i,
					len(got), got[i], want[i])
			}
		}
		if len(want) != len(got) || none != 0 {
			t.Fatalf("seed %d: %d entries, in full %d with %d CRCs", seed, len(got),
				len(want), none)
		}
		crcs += n
	}
	if crcs < 1000 {
		t.Errorf("%d segments with a CRC", crcs)
	}
	t.Logf("%d segments with a CRC", crcs)
}

// TestChecksumPieces: the checksum and the CRC of a segment in pieces of any length are those of the whole segment.
func TestChecksumPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, 32+1+r.IntN(3000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		right := r.IntN(2) == 0
		b[16], b[17] = 0, 0
		wire.PutChecksum(b, wire.Finish(wire.Sum(b, 77)))
		if !right {
			b[r.IntN(len(b))] ^= 0x10
		}
		first := 32 + r.IntN(len(b)-32+1)
		pieces := [][]byte{b[:first]}
		for rest := b[first:]; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		want := checksum.CRC(0, b[32:])
		for _, crcs := range []bool{false, true} {
			c, sum := checksum.Known{Valid: crcs}, wire.Sum(b[:32], 77)
			own := slices.Clone(pieces)
			own[0] = own[0][32:]
			if c.CRC, sum = checksum.Sum(own[0], 0, sum); !crcs {
				c.CRC = want
			}
			if sum = sumRest(own, sum, &c); wire.Right(sum) != right || c.CRC != want {
				t.Fatalf("%d bytes in %d pieces, right %v: %v, CRC %+v", len(b), len(pieces),
					right, wire.Right(sum), c)
			}
		}
	}
}

// TestPartialChecksum: a TCP checksum of the pseudo-header only is accepted from a veth and in frames longer than the
// MTU, and refused in others, which may have been on a wire. Both are counted. Any other wrong checksum is refused.
func TestPartialChecksum(t *testing.T) {
	for _, c := range []struct {
		name     string
		veth, v6 bool
		payload  int
		wrong    uint16
		accepted bool
	}{
		{name: "within the MTU", payload: 1440},
		{name: "with two VLAN tags", payload: 1460 + 2*ip.VLANTagLen},
		{name: "longer than the MTU", payload: 30000, accepted: true},
		{name: "longer than the MTU, IPv6", payload: 30000, v6: true, accepted: true},
		{name: "longer than the MTU, wrong", payload: 30000, wrong: 1},
		{name: "veth", veth: true, payload: 1, accepted: true},
		{name: "veth, IPv6", veth: true, v6: true, accepted: true},
		{name: "veth, longer than the MTU", veth: true, payload: 30000, accepted: true},
		{name: "veth, wrong", veth: true, payload: 1440, wrong: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, func(cfg *Config) { cfg.Veth = c.veth })
			x := ip.Header{Src: v4(192, 0, 2, 2), Dst: v4(192, 0, 2, 1), V6: c.v6, TTL: 64,
				Proto: ip.ProtoTCP, PayloadLen: wire.HeaderLen + c.payload}
			e := ip.Ethernet{Dst: macs[0], Src: macs[1], Type: ip.TypeIPv4}
			if c.v6 {
				e.Type = ip.TypeIPv6
				x.Src[0], x.Dst[0], x.Src[1], x.Dst[1] = 0x20, 0x20, 1, 1
			}
			f := make([]byte, ip.EthernetLen+ip.Len6+x.PayloadLen)
			n := e.Put(f)
			n += x.Put(f[n:])
			tcpHeader := wire.Header{SrcPort: 9, DstPort: 9, Flags: wire.ACK}
			tcpHeader.Put(f[n:])
			f[n+wire.HeaderLen-1+c.payload] |= 0x55
			wire.PutChecksum(f[n:], wire.Fold(x.PseudoSum(x.PayloadLen))^c.wrong)
			h.give(f[:n+x.PayloadLen])
			want := Stats{PartialSums: 1}
			if !c.accepted {
				want = Stats{DropChecksum: uint64(c.wrong), DropPartialSum: uint64(1 - c.wrong)}
			}
			got := h.s.Stats()
			if got.PartialSums != want.PartialSums || got.DropChecksum != want.DropChecksum ||
				got.DropPartialSum != want.DropPartialSum {
				t.Errorf("%+v", got)
			}
		})
	}
}
