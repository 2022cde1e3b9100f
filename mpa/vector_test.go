package mpa

import (
	"bytes"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// lender cuts one message in memory into ULPDUs with a header of 14 bytes. sizes gives their lengths in turn. It lends
// those with an even number.
type lender struct {
	mem   []byte
	sizes []int
	made  []ulpdu.Ref // Off is the offset in mem, ID the number << 32 | the bytes of payload
	off   int
	all   bool // lends those with an odd number too
}

const lenderHead = 14

func (l *lender) NextULPDU(most int) (ulpdu.Ref, int) {
	n := min(l.sizes[len(l.made)%len(l.sizes)], most-lenderHead, len(l.mem)-l.off)
	if n <= 0 {
		return ulpdu.Ref{}, 0
	}
	ref := ulpdu.Ref{ID: uint64(len(l.made))<<32 | uint64(n), Off: uint32(l.off)}
	l.made, l.off = append(l.made, ref), l.off+n
	return ref, lenderHead + n
}

func (l *lender) ULPDUWaiting() bool { return l.off < len(l.mem) }

func (l *lender) ReadULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) {
	for i := range dst[:lenderHead] {
		dst[i] = byte(ref.ID>>32) ^ byte(i)
	}
	return lenderHead, l.mem[ref.Off:]
}

func (l *lender) LendULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) {
	if ref.ID>>32%2 != 0 && !l.all {
		return 0, nil
	}
	return l.ReadULPDU(ref, dst)
}

func (l *lender) ReleaseULPDU(ulpdu.Ref) {}

func newLender() *lender {
	l := &lender{mem: make([]byte, 400<<10), sizes: []int{minLent, 5, minLent - lenderHead,
		minLent - lenderHead - 1, 60001, 60002, 60003, 0xfc00, 70000, 1448}}
	for i := range l.mem {
		l.mem[i] = byte(i*7 + i>>8)
	}
	return l
}

// join returns the bytes of a Vector in one piece.
func join(v *Vector) []byte { return bytes.Join(v.Pieces(), nil) }

// TestGather compares what Gather makes of FPDUs with what Fill makes of them, byte by byte, for any number of FPDUs
// that are collected before a transport takes them, and of bytes that it takes at a time.
func TestGather(t *testing.T) {
	for _, f := range framings {
		for _, pack := range []bool{false, true} {
			for _, most := range []int{1, 13, 999, 65536, 1 << 20} {
				gather(t, f, pack, most)
			}
		}
	}
}

func gather(t *testing.T, f Framing, pack bool, most int) {
	src := newLender()
	var s Sender
	s.Init(SenderConfig{f, pack}, 7, MaxFPDU, src)
	v := Vector{Room: make([]byte, 3*MaxFPDU)}
	at, lent, copied := seq.Num(7), 0, 0
	var got, want []byte
	for rest := true; rest; {
		for rest && v.Len() < most && v.Space() >= MaxFPDU {
			n, _ := s.Next(MaxFPDU)
			if rest = n > 0; !rest {
				break
			}
			b := make([]byte, n)
			if !s.Fill(seq.Of(at, n), b) {
				t.Fatal("Fill failed")
			}
			before := v.used
			if !s.Gather(seq.Of(at, n), &v) {
				t.Fatal("Gather failed")
			}
			lent, copied = lent+n-(v.used-before), copied+v.used-before
			want, at = append(want, b...), at.Add(n)
		}
		for v.Len() > 0 {
			n := min(most, v.Len())
			b := join(&v)
			if len(b) != v.Len() {
				t.Fatalf("%d bytes in the pieces, Len says %d", len(b), v.Len())
			}
			got = append(got, b[:n]...)
			if v.Discard(n); most < 1000 && len(b) > 2*most { // the rest at once, it takes long otherwise
				got = append(got, join(&v)...)
				v.Discard(v.Len())
			}
			if n == most && rest {
				break // and collects more behind what is left
			}
		}
	}
	if got = append(got, join(&v)...); !bytes.Equal(got, want) {
		t.Errorf("%s, pack %v, %d at a time: other bytes than Fill's", f.label(), pack, most)
	}
	if f.Markers != (lent == 0) || copied == 0 {
		t.Errorf("%s, pack %v: %d bytes lent and %d copied", f.label(), pack, lent, copied)
	}
}

// TestGatherRefuses: Gather fails, and adds nothing to the Vector, for a range that does not begin or end with an FPDU,
// or that was not frozen.
func TestGatherRefuses(t *testing.T) {
	var s Sender
	s.Init(SenderConfig{}, 0, MaxFPDU, newLender())
	n, _ := s.Next(MaxFPDU)
	v := Vector{Room: make([]byte, MaxFPDU)}
	for _, r := range []seq.Range{seq.Of(4, n-4), seq.Of(0, n-4), seq.Of(seq.Num(n), 4)} {
		if s.Gather(r, &v) || v.Len() > 0 {
			t.Errorf("%v was taken", r)
		}
	}
}

// TestVectorRestore: Restore removes everything appended since Snapshot, whether the last piece was then in Room or
// lent.
func TestVectorRestore(t *testing.T) {
	for _, lent := range []bool{false, true} {
		v := Vector{Room: make([]byte, 100)}
		copy(v.Extend(5), "first")
		if lent {
			v.appendLent([]byte("lent"))
		}
		want := join(&v)
		m := v.Snapshot()
		copy(v.Extend(6), "second")
		v.appendLent([]byte("third"))
		if v.Restore(m); !bytes.Equal(join(&v), want) || v.Len() != len(want) {
			t.Errorf("lent %v: %q is left", lent, join(&v))
		}
		if copy(v.Extend(4), "tail"); string(join(&v)) != string(want)+"tail" {
			t.Errorf("lent %v: then %q", lent, join(&v))
		}
	}
}

// TestVectorCopyLent: after CopyLent the lent memory may change, and bytes appended after it are not lost.
func TestVectorCopyLent(t *testing.T) {
	lent := bytes.Repeat([]byte("lent"), 100)
	v := &Vector{Room: make([]byte, 64)}
	copy(v.Extend(4), "head")
	v.appendLent(lent)
	copy(v.Extend(4), "tail")
	v.CopyLent()
	copy(v.Extend(4), "more")
	want := "head" + string(lent) + "tailmore"
	clear(lent)
	if got := bytes.Join(v.Pieces(), nil); string(got) != want || v.Len() != len(want) {
		t.Errorf("%d bytes: %q", v.Len(), got)
	}
}

// TestGatherAllocatesNothing gathers and discards for a long time without ever emptying the Vector.
func TestGatherAllocatesNothing(t *testing.T) {
	src := &lender{mem: make([]byte, 64<<20), sizes: []int{minLent}, all: true,
		made: make([]ulpdu.Ref, 0, 1<<14)}
	var s Sender
	s.Init(SenderConfig{Framing: Framing{CRC: true}}, 0, MaxFPDU, src)
	v := Vector{Room: make([]byte, 4<<20)}
	at, acked := seq.Num(0), seq.Num(0)
	turn := func() {
		for v.Len() < 1<<20 {
			n, _ := s.Next(MaxFPDU)
			s.Gather(seq.Of(at, n), &v)
			at = at.Add(n)
		}
		v.Discard(1 << 18)
		acked = acked.Add(1 << 18)
		s.Acked(acked)
	}
	for range 20 {
		turn()
	}
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations in a turn", n)
	}
}
