package ip

import (
	"bytes"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/tick"
)

// pieces is a simple model of a datagram under reassembly: the set of its received bytes instead of a list of holes.
type pieces struct {
	there []bool // which bytes were received, up to the last of them
	end   int    // -1 until the last fragment arrives
	dead  bool
	until tick.Time
}

// add adds a fragment by RFC 815 and RFC 5722: a duplicate is ignored, an overlap drops the datagram.
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
	case known == n: // a duplicate
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

// beyond reports whether any byte from offset end on was received.
func (p *pieces) beyond(end int) bool {
	for _, t := range p.there[end:] {
		if t {
			return true
		}
	}
	return false
}

// holes returns the number of gaps. While the last fragment is missing, it includes the gap at the end.
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

// data is the content of all datagrams: a fragment at offset n carries the bytes from data[n] on.
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

// FuzzReassembler gives a Reassembler a sequence of fragments of several datagrams, in both versions of IP, and
// compares the result with the model. Five bytes describe a fragment: the datagram and flags; the offset and the
// length, in units of 8 bytes, or of 256 bytes with flag 32; up to 7 more bytes of length; and the time before the
// fragment, in quarters of a second.
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
