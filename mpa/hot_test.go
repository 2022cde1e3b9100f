package mpa

import (
	"fmt"
	"hash/crc32"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// copySink copies payload behind a header of 14 bytes to memory, as an RDMA Write does.
type copySink struct {
	mem  []byte
	n    int
	seen int
}

func (c *copySink) Place(v *ulpdu.View, inOrder bool) *ulpdu.Error {
	var scratch [14]byte
	_ = v.Header(14, scratch[:])
	c.n += v.CopyTo(c.mem, 14)
	return nil
}

func (c *copySink) Silent([]byte, int) bool { return false }

func (c *copySink) Deliver(hdr []byte, n int) *ulpdu.Error {
	c.seen++
	return nil
}

// blobSource has one endless message in memory.
type blobSource struct{ mem []byte }

func (b *blobSource) NextULPDU(most int) (ulpdu.Ref, int) { return ulpdu.Ref{}, most }
func (b *blobSource) ULPDUWaiting() bool                  { return false }
func (b *blobSource) ReadULPDU(_ ulpdu.Ref, dst []byte) (int, []byte) {
	return copy(dst, b.mem), nil
}
func (b *blobSource) LendULPDU(ulpdu.Ref, []byte) (int, []byte) { return 0, nil }
func (b *blobSource) ReleaseULPDU(ulpdu.Ref)                    {}

var framings = []Framing{{}, {CRC: true}, {Markers: true}, {Markers: true, CRC: true}}

func (f Framing) label() string { return fmt.Sprintf("markers=%v/crc=%v", f.Markers, f.CRC) }

// loop is a stream of aligned segments that can be offered again and again: the stream goes on, the bytes repeat. With
// markers the segments cover a whole number of marker intervals.
type loop struct {
	segs [][]byte
	r    Receiver
	sink copySink
	at   seq.Num
	i    int
	one  [1][]byte
}

func newLoop(f Framing, emss int) *loop {
	l := &loop{sink: copySink{mem: make([]byte, 1<<16)}}
	off := 0
	for len(l.segs) == 0 || off%MarkerInterval != 0 {
		u := make([]byte, f.MULPDU(emss))
		l.segs = append(l.segs, encode(f, off, u))
		off += len(l.segs[len(l.segs)-1])
	}
	l.r.Init(ReceiverConfig{Framing: f, Pool: NewPool(0, 0)}, 0, &l.sink)
	return l
}

func (l *loop) next() []byte {
	b := l.segs[l.i]
	l.i = (l.i + 1) % len(l.segs)
	return b
}

func (l *loop) offer(at seq.Num, b []byte) bool {
	l.one[0] = b
	kept, err := l.r.Offer(at, l.one[:], len(b), checksum.Known{})
	return kept == len(b) && err == nil
}

// step offers one segment in order.
func (l *loop) step() bool {
	b := l.next()
	ok := l.offer(l.at, b)
	l.at = l.at.Add(len(b))
	return l.r.Advance(l.at) == nil && ok
}

// swap offers two segments in the wrong order.
func (l *loop) swap() bool {
	a, b := l.next(), l.next()
	ok := l.offer(l.at.Add(len(a)), b)
	ok = l.offer(l.at, a) && ok
	l.at = l.at.Add(len(a) + len(b))
	return l.r.Advance(l.at) == nil && ok
}

// cut offers one segment in two parts.
func (l *loop) cut() bool {
	b := l.next()
	ok := true
	for _, p := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
		ok = l.offer(l.at, p) && ok
		l.at = l.at.Add(len(p))
		ok = l.r.Advance(l.at) == nil && ok
	}
	return ok
}

// TestNoAllocation checks that a packet allocates nothing once the buffers have grown.
func TestNoAllocation(t *testing.T) {
	for _, f := range framings {
		for name, do := range map[string]func(*loop) bool{"in order": (*loop).step,
			"out of order": (*loop).swap, "cut": (*loop).cut} {
			t.Run(f.label()+"/"+name, func(t *testing.T) {
				l := newLoop(f, 1448)
				for range 100 {
					do(l)
				}
				if got := testing.AllocsPerRun(500, func() {
					if !do(l) {
						t.Fatalf("the stream broke: %v %+v", l.r.err, l.r.Stats())
					}
				}); got != 0 {
					t.Errorf("%v allocations per call", got)
				}
			})
		}
		t.Run(f.label()+"/send", func(t *testing.T) {
			var s Sender
			s.Init(SenderConfig{Framing: f}, 0, 1448, &blobSource{make([]byte, 1<<16)})
			dst := make([]byte, 1448)
			at := seq.Num(0)
			send := func() {
				n, _ := s.Next(1448)
				if !s.Fill(seq.Of(at, n), dst) || !s.Fill(seq.Of(at.Add(5), n-9), dst) {
					t.Fatal("Fill failed")
				}
				at = at.Add(n)
				s.Acked(at)
			}
			send()
			if got := testing.AllocsPerRun(500, send); got != 0 {
				t.Errorf("%v allocations per segment", got)
			}
		})
	}
}

func BenchmarkOffer(b *testing.B) {
	for _, emss := range []int{1448, 8948} {
		for _, f := range framings {
			for name, do := range map[string]func(*loop) bool{"order": (*loop).step,
				"swap": (*loop).swap, "cut": (*loop).cut} {
				b.Run(fmt.Sprintf("emss=%d/%s/%s", emss, f.label(), name), func(b *testing.B) {
					l := newLoop(f, emss)
					b.ReportAllocs()
					before := l.at
					n := 0
					for b.Loop() {
						if !do(l) {
							b.Fatal(l.r.err)
						}
						n += int(l.at - before)
						before = l.at
					}
					b.SetBytes(int64(n / max(1, b.N)))
				})
			}
		}
	}
}

func BenchmarkFill(b *testing.B) {
	for _, emss := range []int{1448, 8948} {
		for _, f := range framings {
			b.Run(fmt.Sprintf("emss=%d/%s", emss, f.label()), func(b *testing.B) {
				var s Sender
				s.Init(SenderConfig{Framing: f}, 0, emss, &blobSource{make([]byte, 1<<16)})
				dst := make([]byte, emss)
				at := seq.Num(0)
				b.ReportAllocs()
				b.SetBytes(int64(emss))
				for b.Loop() {
					n, _ := s.Next(emss)
					s.Fill(seq.Of(at, n), dst)
					at = at.Add(n)
					s.Acked(at)
				}
			})
		}
	}
}

// BenchmarkFloor measures the least work for an FPDU: one copy, and one copy with one CRC.
func BenchmarkFloor(b *testing.B) {
	for _, emss := range []int{1448, 8948} {
		src, dst := make([]byte, emss), make([]byte, emss)
		b.Run(fmt.Sprintf("emss=%d/copy", emss), func(b *testing.B) {
			b.SetBytes(int64(emss))
			for b.Loop() {
				copy(dst, src)
			}
		})
		b.Run(fmt.Sprintf("emss=%d/copy+crc", emss), func(b *testing.B) {
			b.SetBytes(int64(emss))
			for b.Loop() {
				copy(dst, src)
				floor = crc32.Update(0, castagnoli, src)
			}
		})
	}
}

var floor uint32
