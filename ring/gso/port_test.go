package gso

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/tcp/wire"
)

// wireSegment is a segment as the tests write it.
type wireSegment struct {
	ipv6      bool
	port      uint16
	seq, ack  uint32
	flags     byte
	id        uint16
	options   int // octets of TCP options
	payload   []byte
	headFlags byte // low bits beside the length
}

// frame builds the frame, with all checksums.
func (w *wireSegment) frame() []byte {
	at := ethernet + ipHeader
	kind := uint16(typeIPv4)
	if w.ipv6 {
		at, kind = ethernet+ipv6Header, typeIPv6
	}
	b := make([]byte, at+tcpMin+w.options+len(w.payload))
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(b[12:], kind)
	t := b[at:]
	binary.BigEndian.PutUint16(t, w.port)
	binary.BigEndian.PutUint16(t[2:], 9)
	binary.BigEndian.PutUint32(t[4:], w.seq)
	binary.BigEndian.PutUint32(t[8:], w.ack)
	t[12], t[13] = byte(tcpMin+w.options)/4<<4|w.headFlags, w.flags
	t[15] = 200 // window
	for i := range w.options {
		t[tcpMin+i] = 1
	}
	copy(t[tcpMin+w.options:], w.payload)
	h := b[ethernet:]
	if w.ipv6 {
		h[0], h[6], h[7] = 0x60, protoTCP, 64
		binary.BigEndian.PutUint16(h[4:], uint16(len(t)))
		copy(h[8:], addrA6[:])
		copy(h[24:], addrB6[:])
	} else {
		h[0], h[6], h[8], h[9] = 0x45, 0x40, 64, protoTCP
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[4:], w.id)
		copy(h[12:], addrA4[:])
		copy(h[16:], addrB4[:])
	}
	sum(b)
	return b
}

var (
	addrA4 = [4]byte{10, 0, 0, 1}
	addrB4 = [4]byte{10, 0, 0, 2}
	addrA6 = [16]byte{0xfd, 15: 1}
	addrB6 = [16]byte{0xfd, 15: 2}
)

// sum writes the checksums of a frame.
func sum(b []byte) {
	h := b[ethernet:]
	if b[12] == 0x86 {
		t := h[ipv6Header:]
		wire.PutChecksum(t, 0)
		wire.PutChecksum(t, wire.Finish(wire.Sum(t, wire.PseudoSum6([16]byte(h[8:]), [16]byte(h[24:]), protoTCP, len(t)))))
		return
	}
	binary.BigEndian.PutUint16(h[10:], 0)
	binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ipHeader], 0)))
	t := h[ipHeader:]
	wire.PutChecksum(t, 0)
	wire.PutChecksum(t, wire.Finish(wire.Sum(t, wire.PseudoSum4([4]byte(h[12:]), [4]byte(h[16:]), protoTCP, len(t)))))
}

// recorder is the kernel's side of a packet socket: it cuts blocks as segmentation offload does.
type recorder struct {
	t   *testing.T
	got *[][]byte
	err func() unix.Errno
}

func (r *recorder) Close() error { return nil }

func (r *recorder) Send(b Block, n int, c *Shape) unix.Errno {
	if r.err != nil {
		if e := r.err(); e != 0 {
			return e
		}
	}
	if n > MaxBlock || n <= c.Headers+c.Payload {
		r.t.Errorf("a block of %d octets, %d in headers and %d in a segment", n, c.Headers, c.Payload)
	}
	frame := b.Frame()[:n]
	at := c.tcpAt()
	for i, off := 0, c.Headers; off < n; i, off = i+1, off+c.Payload {
		end := min(n, off+c.Payload)
		f := append(bytes.Clone(frame[:c.Headers]), frame[off:end]...)
		h := f[ethernet:]
		if c.IPv6 {
			binary.BigEndian.PutUint16(h[4:], uint16(len(f)-at))
		} else {
			binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
			binary.BigEndian.PutUint16(h[4:], binary.BigEndian.Uint16(h[4:])+uint16(i))
		}
		t := f[at:]
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(off-c.Headers))
		if end < n {
			t[flagsAt] &^= flagPSH
		}
		sum(f)
		*r.got = append(*r.got, f)
	}
	return 0
}

// below is the Port below: it sends to the same list.
type below struct {
	ring.Port
	room  int
	slots int // free ones
	wait  [][]byte
	got   *[][]byte
	buf   []byte
}

func (b *below) Info() ring.Info { return ring.Info{TxRoom: b.room} }
func (b *below) AllocTx() (ring.TxBuf, bool) {
	if len(b.wait) >= b.slots {
		return ring.TxBuf{}, false
	}
	return ring.TxBuf{Data: b.buf}, true
}
func (b *below) Send(x ring.TxBuf, n int) { b.wait = append(b.wait, bytes.Clone(x.Data[:n])) }
func (b *below) Flush() ring.State {
	*b.got, b.wait = append(*b.got, b.wait...), nil
	return ring.StateOK
}

// script makes runs of segments with everything that ends a run in between.
func script(r *rand.Rand, ipv6 bool) (all [][]byte) {
	w := wireSegment{ipv6: ipv6, seq: r.Uint32(), port: 7, options: 12, id: uint16(r.Uint32())}
	full := 500 + r.IntN(8500)
	for range 200 {
		w.flags, w.headFlags = flagACK, 0
		n := full
		switch r.IntN(24) {
		case 0:
			n = 1 + r.IntN(full)
		case 1:
			w.flags |= flagPSH
		case 2:
			n, w.ack = 0, w.ack+1
		case 3:
			w.ack++
		case 4:
			w.port ^= 64
		case 5:
			w.seq -= uint32(full)
		case 6:
			w.options = 4 * r.IntN(10)
		case 7:
			full = 500 + r.IntN(8500)
		case 8:
			w.flags |= []byte{1, 2, 4, 0x20, 0x40, 0x80}[r.IntN(6)]
		case 9:
			w.headFlags = 1
		}
		w.payload = make([]byte, n)
		for i := range w.payload {
			w.payload[i] = byte(r.Uint32())
		}
		all = append(all, w.frame())
		w.seq += uint32(n)
		if !ipv6 {
			w.id++
		}
	}
	return all
}

// TestSameFrames: what the kernel makes of the blocks are the frames that were sent, octet for octet and in order; also
// when the kernel or the Port below take nothing for a while.
func TestSameFrames(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := script(r, seed%2 == 1)
		var got [][]byte
		lower := &below{room: 9200, slots: 3, got: &got, buf: make([]byte, 9200)}
		rec := &recorder{t: t, got: &got, err: func() unix.Errno {
			if r.IntN(4) == 0 {
				return unix.EAGAIN
			}
			return 0
		}}
		p := wrap(lower, rec)
		for i, f := range want {
			for tries := 0; ; tries++ {
				b, ok := p.AllocTx()
				if ok {
					if r.IntN(10) == 0 { // a writer may change its mind
						clear(b.Data[:100])
						p.CancelTx(b)
						continue
					}
					p.Send(b, copy(b.Data, f))
					break
				}
				p.Flush()
				if tries == 1000 {
					t.Fatalf("seed %d: no room for frame %d", seed, i)
				}
			}
			if r.IntN(30) == 0 {
				p.Flush()
			}
		}
		for tries := 0; p.Flush() != ring.StateOK; tries++ {
			if tries == 1000 {
				t.Fatalf("seed %d: frames stay", seed)
			}
		}
		if n := len(got); n > 0 && n == len(want) && !bytes.Equal(got[n-1], want[n-1]) {
			t.Errorf("seed %d: the last frame differs: %x, want %x", seed, got[n-1], want[n-1])
		}
		if err := equal(withoutPSH(got), withoutPSH(want)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s := p.GSOStats(); s.Blocks == 0 || s.Single == 0 || s.Segments+s.Single != uint64(len(want)) || s.Segments < 2*s.Blocks {
			t.Errorf("seed %d: %+v", seed, s)
		}
	}
}

// withoutPSH clears the one flag that need not arrive.
func withoutPSH(frames [][]byte) [][]byte {
	for _, f := range frames {
		if s, ok := parse(f); ok {
			f[s.tcpAt()+flagsAt] &^= flagPSH
			sum(f)
		}
	}
	return frames
}

func equal(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d frames, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			h := min(len(got[i]), len(want[i]), 94)
			return fmt.Errorf("frame %d: %d octets %x, want %d octets %x", i, len(got[i]), got[i][:h], len(want[i]), want[i][:h])
		}
	}
	return nil
}

// TestDropped: a block that the kernel refuses for good does not stop what follows.
func TestDropped(t *testing.T) {
	var got [][]byte
	lower := &below{room: 2000, slots: 3, got: &got, buf: make([]byte, 2000)}
	p := wrap(lower, &recorder{t: t, got: &got, err: func() unix.Errno { return unix.ENOBUFS }})
	w := wireSegment{flags: flagACK, payload: make([]byte, 1000)}
	for range 3 {
		b, _ := p.AllocTx()
		p.Send(b, copy(b.Data, w.frame()))
		w.seq += 1000
	}
	if st := p.Flush(); st != ring.StateOK || p.GSOStats().Dropped != 1 || len(got) != 0 {
		t.Errorf("%v, %+v, %d frames", st, p.GSOStats(), len(got))
	}
	b, ok := p.AllocTx()
	if !ok {
		t.Fatal("no slot")
	}
	if _, ok := p.AllocTx(); ok {
		t.Error("two slots at a time")
	}
	p.Send(b, copy(b.Data, w.frame()))
	if p.Flush(); len(got) != 1 {
		t.Errorf("%d frames", len(got))
	}
}

// TestNoAllocations: the data path.
func TestNoAllocations(t *testing.T) {
	lower := &below{room: 2000, slots: 3, buf: make([]byte, 2000)}
	p := wrap(lower, discard{})
	w := wireSegment{flags: flagACK, payload: make([]byte, 1000)}
	f := w.frame()
	if n := testing.AllocsPerRun(100, func() {
		for range 100 {
			b, _ := p.AllocTx()
			copy(b.Data, f)
			binary.BigEndian.PutUint32(b.Data[ethernet+ipHeader+seqAt:], w.seq)
			w.seq += 1000
			p.Send(b, len(f))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if p.GSOStats().Blocks == 0 {
		t.Error("nothing was joined")
	}
}

type discard struct{}

func (discard) Send(Block, int, *Shape) unix.Errno { return 0 }
func (discard) Close() error                       { return nil }
