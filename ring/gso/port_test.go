package gso

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

const flagACK, flagECE = 0x10, 0x40

// wireSegment is a segment built by the tests.
type wireSegment struct {
	ipv6      bool
	port      uint16
	seq, ack  uint32
	flags     byte
	id        uint16
	options   int // bytes of TCP options
	payload   []byte
	headFlags byte // low bits of the byte with the header length: the AE flag
}

// frame builds the frame, with all checksums.
func (w *wireSegment) frame() []byte {
	at := ip.EthernetLen + ip.Len4
	kind := uint16(0x0800)
	if w.ipv6 {
		at, kind = ip.EthernetLen+ip.Len6, 0x86dd
	}
	b := make([]byte, at+wire.HeaderLen+w.options+len(w.payload))
	copy(b, dstMAC[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(b[12:], kind)
	t := b[at:]
	binary.BigEndian.PutUint16(t, w.port)
	binary.BigEndian.PutUint16(t[2:], 9)
	binary.BigEndian.PutUint32(t[4:], w.seq)
	binary.BigEndian.PutUint32(t[8:], w.ack)
	t[12], t[13] = byte(wire.HeaderLen+w.options)/4<<4|w.headFlags, w.flags
	t[15] = 200 // window
	for i := range w.options {
		t[wire.HeaderLen+i] = 1
	}
	copy(t[wire.HeaderLen+w.options:], w.payload)
	h := b[ip.EthernetLen:]
	if w.ipv6 {
		h[0], h[6], h[7] = 0x60, ip.ProtoTCP, 64
		binary.BigEndian.PutUint16(h[4:], uint16(len(t)))
		copy(h[8:], addrA6[:])
		copy(h[24:], addrB6[:])
	} else {
		h[0], h[6], h[8], h[9] = 0x45, 0x40, 64, ip.ProtoTCP
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[4:], w.id)
		copy(h[12:], addrA4[:])
		copy(h[16:], addrB4[:])
	}
	checksums(b)
	return b
}

var (
	dstMAC = [6]byte{2, 0, 0, 0, 0, 2}
	addrA4 = [4]byte{10, 0, 0, 1}
	addrB4 = [4]byte{10, 0, 0, 2}
	addrA6 = [16]byte{0xfd, 15: 1}
	addrB6 = [16]byte{0xfd, 15: 2}
)

// checksums writes the checksums of a frame.
func checksums(b []byte) {
	h := b[ip.EthernetLen:]
	if b[12] == 0x86 {
		t := h[ip.Len6:]
		wire.PutChecksum(t, 0)
		wire.PutChecksum(t,
			wire.Finish(wire.Sum(t, wire.PseudoSum6([16]byte(h[8:]), [16]byte(h[24:]), ip.ProtoTCP,
				len(t)))))
		return
	}
	binary.BigEndian.PutUint16(h[10:], 0)
	binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ip.Len4], 0)))
	t := h[ip.Len4:]
	wire.PutChecksum(t, 0)
	wire.PutChecksum(t, wire.Finish(wire.Sum(t, wire.PseudoSum4([4]byte(h[12:]), [4]byte(h[16:]),
		ip.ProtoTCP, len(t)))))
}

// draw returns a random block of at most most segments, and the frames that it stands for. The segments have size bytes
// of payload; the last one may be shorter.
func draw(r *rand.Rand, ipv6 bool, size, most int) (block []byte, s Shape, frames [][]byte) {
	w := wireSegment{ipv6: ipv6, port: 7, seq: r.Uint32(), ack: r.Uint32(), id: uint16(r.Uint32()),
		options: 12, headFlags: byte(r.IntN(2))}
	w.flags = flagACK | byte(r.IntN(2))*flagECE // with headFlags, part of the ACE field
	s = Shape{IPAt: ip.EthernetLen, Headers: ip.EthernetLen + ip.Len4 + wire.HeaderLen + w.options,
		Payload: size, IPv6: ipv6}
	if ipv6 {
		s.Headers += ip.Len6 - ip.Len4
	}
	n := 2 + r.IntN(min(most, (MaxBlock-s.Headers)/size)-1)
	total := size * n
	if r.IntN(2) == 0 {
		total -= r.IntN(size)
	}
	all := make([]byte, total)
	for i := range all {
		all[i] = byte(r.Uint32())
	}
	last := r.IntN(2) * int(wire.PSH)
	whole := w
	whole.payload, whole.flags = all, w.flags|byte(last)
	block = whole.frame()
	for part := range slices.Chunk(all, size) {
		w.payload = part
		if len(frames) == n-1 {
			w.flags |= byte(last)
		}
		frames = append(frames, w.frame())
		w.seq += uint32(size)
		if !ipv6 {
			w.id++
		}
	}
	return block, s, frames
}

// TestSegment checks the frames of a block, byte for byte.
func TestSegment(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		block, s, want := draw(r, i%2 == 1, 1+r.IntN(9000), 100)
		var got [][]byte
		for i := range s.Segments(len(block)) {
			got = append(got, s.Segment(nil, block, i))
		}
		if err := equal(got, want); err != nil {
			t.Fatalf("case %d, %+v: %v", i, s, err)
		}
	}
}

func equal(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d frames, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			h := min(len(got[i]), len(want[i]), 94)
			return fmt.Errorf("frame %d: %d bytes %x, want %d bytes %x", i, len(got[i]),
				got[i][:h], len(want[i]), want[i][:h])
		}
	}
	return nil
}

// recorder replaces a packet socket: it appends the segments of each block to got, unless err returns an error.
type recorder struct {
	got *[][]byte
	err func() unix.Errno
}

func (r *recorder) Close() error { return nil }

func (r *recorder) Send(b Block, n int, s *Shape) unix.Errno {
	if e := r.err(); e != 0 {
		return e
	}
	for i := range s.Segments(n) {
		*r.got = append(*r.got, s.Segment(nil, b.Frame()[:n], i))
	}
	return 0
}

// below is the Port below: Flush appends the frames to got. If part returns true, the last frame stays for a later
// Flush.
type below struct {
	ring.Port
	wait [][]byte
	got  *[][]byte
	part func() bool
}

func (b *below) AllocTx() (ring.TxBuf, bool) { return ring.TxBuf{Data: make([]byte, 2000)}, true }
func (b *below) Send(x ring.TxBuf, n int)    { b.wait = append(b.wait, x.Data[:n]) }
func (b *below) Flush() ring.State {
	n := len(b.wait)
	if n > 0 && b.part() {
		n--
	}
	*b.got = append(*b.got, b.wait[:n]...)
	if b.wait = b.wait[n:]; len(b.wait) > 0 {
		return ring.StateAgain
	}
	return ring.StateOK
}

// TestOrder: frames and blocks are sent in the order in which they were written, even if the kernel at times accepts no
// blocks, or not every frame.
func TestOrder(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var got, want [][]byte
		busy, refused := 0, 0
		part := func() bool { return r.IntN(3) == 0 }
		p := Wrap(&below{got: &got, part: part}, &recorder{&got, func() unix.Errno {
			if busy == 0 && r.IntN(4) == 0 {
				busy = 1 + r.IntN(3)
			}
			if busy > 0 {
				busy--
				refused++
				return []unix.Errno{unix.EAGAIN, unix.EINTR, unix.ENETDOWN}[r.IntN(3)]
			}
			return 0
		}})
		for range 100 {
			block, s, frames := draw(r, false, 100+r.IntN(1300), 10)
			mem := []byte(nil)
			if r.IntN(2) == 0 {
				mem = p.Block()
			}
			if mem != nil {
				if len(mem) < MaxBlock {
					t.Fatalf("%d bytes", len(mem))
				}
				p.SendBlock(mem[:copy(mem, block)], ring.Shape(s))
				want = append(want, frames...)
			} else {
				b, _ := p.AllocTx()
				p.Send(b, copy(b.Data, frames[0]))
				want = append(want, frames[0])
			}
			if r.IntN(10) == 0 {
				p.Flush()
			}
		}
		for tries := 0; p.Flush() != ring.StateOK; tries++ {
			if tries == 1000 {
				t.Fatalf("seed %d: frames stay", seed)
			}
		}
		if err := equal(got, want); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s := p.GSOStats(); s.Blocks == 0 || s.Single == 0 || refused == 0 || s.Dropped > 0 ||
			s.Segments+s.Single != uint64(len(want)) {
			t.Errorf("seed %d: %+v, %d frames, %d times refused", seed, s, len(want), refused)
		}
	}
}

// TestDropped: a block that the kernel refuses permanently does not block later frames.
func TestDropped(t *testing.T) {
	var got [][]byte
	p := Wrap(&below{got: &got, part: func() bool { return false }},
		&recorder{&got, func() unix.Errno { return unix.ENOBUFS }})
	block, s, frames := draw(rand.New(rand.NewPCG(1, 3)), false, 1000, 5)
	mem := p.Block()
	p.SendBlock(mem[:copy(mem, block)], ring.Shape(s))
	if st := p.Flush(); st != ring.StateOK || p.GSOStats().Dropped != 1 || len(got) != 0 ||
		p.Block() == nil {
		t.Errorf("%v, %+v, %d frames", st, p.GSOStats(), len(got))
	}
	b, _ := p.AllocTx()
	p.Send(b, copy(b.Data, frames[0]))
	if p.Flush(); len(got) != 1 {
		t.Errorf("%d frames", len(got))
	}
}
