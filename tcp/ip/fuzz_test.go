package ip

import (
	"bytes"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/tick"
)

// pieces is a datagram as a set of received bytes, a simple model of a Reassembler's holes.
type pieces struct {
	there []bool // up to the last one
	end   int    // -1 while the last fragment has not come
	dead  bool
	until tick.Time
}

// add is RFC 815 with RFC 5722: a duplicate is ignored, an overlap ends the datagram.
func (p *pieces) add(off, n int, more bool) {
	known := 0
	if grow := off + n - len(p.there); grow > 0 {
		p.there = append(p.there, make([]bool, grow)...)
	}
	for i := off; i < off+n; i++ {
		known += int(btoi(p.there[i]))
	}
	last := !more
	switch {
	case off+n > maxDatagram, last && p.end >= 0 && p.end != off+n,
		more && p.end >= 0 && off+n > p.end:
		p.dead = true
	case known == n: // again
	case known > 0, last && p.beyond(off+n):
		p.dead = true
	default:
		for i := off; i < off+n; i++ {
			p.there[i] = true
		}
		if last {
			p.end = off + n
		}
		p.dead = p.holes() > maxHoles
	}
}

// beyond reports whether bytes from end on are there.
func (p *pieces) beyond(end int) bool {
	for _, t := range p.there[end:] {
		if t {
			return true
		}
	}
	return false
}

// holes counts the gaps, the one without an end too.
func (p *pieces) holes() (n int) {
	if p.end < 0 || p.end > len(p.there) {
		n++
	}
	for i, t := range p.there {
		if !t && (i == 0 || p.there[i-1]) {
			n++
		}
	}
	return n
}

// data is the bytes of every datagram.
var data = func() []byte {
	b := make([]byte, 1<<17)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}()

// fragmentOps makes the input of FuzzReassembler: five bytes for each fragment.
func fragmentOps(list ...[5]byte) (b []byte) {
	for _, f := range list {
		b = append(b, f[:]...)
	}
	return b
}

// FuzzReassembler gives a Reassembler a sequence of fragments of up to eight datagrams, in both versions of
// IP, and compares the result with the model. A fragment is five bytes: which
// datagram and flags, offset and length in eights, odd bytes, and how much time passes before.
func FuzzReassembler(f *testing.F) {
	const more, v6 = 8, 16
	f.Add(fragmentOps([5]byte{more, 0, 2, 0, 0}, [5]byte{0, 2, 1, 3, 0}))
	f.Add(fragmentOps([5]byte{v6, 4, 1, 5, 0}, [5]byte{v6 | more, 2, 2, 0, 0},
		[5]byte{v6 | more, 0, 2, 0, 0}))
	f.Add(fragmentOps([5]byte{more, 0, 2, 0, 0}, [5]byte{more, 0, 2, 0, 0},
		[5]byte{more, 1, 2, 0, 0},
		[5]byte{0, 3, 1, 0, 0}))
	f.Add(fragmentOps([5]byte{1 | more, 0, 2, 0, 0}, [5]byte{1 | more, 2, 2, 0, 200},
		[5]byte{1 | more, 0, 2, 0, 0}, [5]byte{1, 4, 1, 1, 0}))
	f.Add(fragmentOps([5]byte{2, 255, 255, 7, 0}, [5]byte{2 | more | 32, 255, 255, 0, 0}))
	havoc.Fuzz(f, func(t *testing.T, ops []byte) {
		var re Reassembler
		re.Init(16)
		now := tick.Time(1)
		model := map[byte]*pieces{}
		for ; len(ops) >= 5; ops = ops[5:] {
			now = now.Add(tick.Duration(ops[4]) * tick.Second / 4)
			which, more := ops[0]&0x17, ops[0]&8 != 0
			h := Header{V6: which&16 != 0, Proto: ProtoTCP, ID: uint32(which & 3), Fragment: true,
				FragMore: more}
			h.Src[15], h.Dst[15] = which&4, 1
			scale := 8
			if ops[0]&32 != 0 {
				scale = 256
			}
			off := min(int(ops[1])*scale, 0x1fff*8)
			h.FragOff = off
			n := int(ops[2])*scale + int(ops[3]&7)
			h.PayloadLen = n
			got := re.Add(&h, data[off:][:n], now)
			if n == 0 || more && n%8 != 0 {
				if got != nil {
					t.Fatal("a malformed fragment made a datagram")
				}
				continue
			}
			p := model[which]
			if p == nil || p.until <= now {
				p = &pieces{end: -1, until: now.Add(reassemblyTime)}
				model[which] = p
			}
			if !p.dead {
				p.add(off, n, more)
			}
			whole := !p.dead && p.end >= 0 && p.holes() == 0
			if whole != (got != nil) {
				t.Fatalf("datagram %d with %d bytes at %d, more %v: whole %v, got %d bytes; %+v",
					which, n, off, more, whole, len(got), re.Counters())
			}
			if whole {
				if !bytes.Equal(got, data[:p.end]) || h.Fragment || h.PayloadLen != p.end {
					t.Fatalf("%d bytes instead of %d, or other ones: %+v", len(got), p.end, h)
				}
				delete(model, which)
			}
		}
	})
}
