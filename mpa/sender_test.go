package mpa

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// messageSource cuts one message into ULPDUs of at most the requested length. The field most is another limit, if it is
// not 0.
type messageSource struct {
	left     int
	most     int
	made     []int // length of each ULPDU
	asked    []int
	released int
	fill     byte // added to every byte; a change stands for a change of the application's memory
}

func (m *messageSource) NextULPDU(most int) (ulpdu.Ref, int) {
	n := min(most, m.left)
	if m.most > 0 {
		n = min(n, m.most)
	}
	if n == 0 {
		return ulpdu.Ref{}, 0
	}
	m.left -= n
	m.made, m.asked = append(m.made, n), append(m.asked, most)
	return ulpdu.Ref{ID: uint64(len(m.made) - 1), Off: uint32(n)}, n
}

func (m *messageSource) payloadByte(id uint64, i int) byte { return byte(id*31) + byte(i) + m.fill }

func (m *messageSource) ULPDUWaiting() bool { return m.left > 0 }

func (m *messageSource) ReadULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) {
	if len(dst) != int(ref.Off) {
		panic("ReadULPDU with the wrong length")
	}
	for i := range dst {
		dst[i] = m.payloadByte(ref.ID, i)
	}
	return len(dst), nil
}

func (m *messageSource) LendULPDU(ulpdu.Ref, []byte) (int, []byte) { return 0, nil }

func (m *messageSource) ReleaseULPDU(ref ulpdu.Ref) {
	if ref.ID != uint64(m.released) {
		panic("ReleaseULPDU out of order")
	}
	m.released++
}

func (m *messageSource) stream(f Framing) (b []byte) {
	for id, n := range m.made {
		u := make([]byte, n)
		for i := range u {
			u[i] = m.payloadByte(uint64(id), i)
		}
		b = append(b, reference(f, len(b), u)...)
	}
	return b
}

// TestSenderStream reads the FPDUs that a Sender froze in every way: segment by segment, and in ranges that cut FPDUs.
//
//req:rfc5044-3-1 rfc5041-2.3-2
func TestSenderStream(t *testing.T) {
	for seed := uint64(0); seed < 150; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := SenderConfig{Framing{rng.IntN(2) == 0, rng.IntN(4) > 0}, rng.IntN(2) == 0}
		emss := pick(rng, 100, 536, 1447, 1448, 1460, 8948, 65000, 200000)
		src := &messageSource{left: 1 + rng.IntN(60000), most: pick(rng, 0, 40, 300, 2000)}
		start := seq.Num(0).Add(-rng.IntN(70000))
		var s Sender
		s.Init(cfg, start, emss, src)
		at := start
		var segments []seq.Range
		for {
			n, more := s.Next(emss)
			if n == 0 && more && emss < 200 { // a segment too small for MinMULPDU: the one case that TCP has to cut
				n, _ = s.Next(200)
			}
			if n == 0 {
				break
			}
			if n > emss && emss >= 150 {
				t.Fatalf("seed %d: segment of %d bytes, EMSS %d", seed, n, emss)
			}
			segments = append(segments, seq.Of(at, n))
			at = at.Add(n)
			if rng.IntN(10) == 0 {
				emss = max(100, emss-rng.IntN(200))
				s.SetEMSS(emss)
			}
		}
		if src.left > 0 {
			t.Fatalf("seed %d: %d bytes were not sent", seed, src.left)
		}
		want := src.stream(cfg.Framing)
		if len(want) != at.Diff(start) {
			t.Fatalf("seed %d: %d bytes frozen, want %d", seed, at.Diff(start), len(want))
		}
		check := func(r seq.Range) {
			t.Helper()
			dst := bytes.Repeat([]byte{0xaa}, r.Len()+3)
			if !s.Fill(r, dst) {
				t.Fatalf("seed %d: Fill %v failed", seed, r)
			}
			if !bytes.Equal(dst[:r.Len()], want[r.Start.Diff(start):][:r.Len()]) {
				t.Fatalf("seed %d: Fill of [%d,%d) of %d is wrong", seed, r.Start.Diff(start),
					r.End.Diff(start), len(want))
			}
			if !bytes.Equal(dst[r.Len():], []byte{0xaa, 0xaa, 0xaa}) {
				t.Fatalf("seed %d: Fill wrote behind its range", seed)
			}
		}
		for _, r := range segments {
			check(r)
		}
		for range 60 {
			a, b := rng.IntN(len(want)+1), rng.IntN(len(want)+1)
			check(seq.Range{Start: start.Add(min(a, b)), End: start.Add(max(a, b))})
		}
		for _, r := range []seq.Range{seq.Of(start.Add(-1), 2), seq.Of(at.Add(-1), 2),
			seq.Of(at, 1)} {
			if s.Fill(r, make([]byte, 4)) {
				t.Fatalf("seed %d: Fill of %v outside [%d,%d) succeeded", seed, r, start, at)
			}
		}
		for una := start; una != at; { // acknowledgements at any byte
			una = seq.Min(at, una.Add(1+rng.IntN(5000)))
			s.Acked(una)
			done, off := 0, 0
			for _, n := range src.made {
				if off += cfg.Size(uint64(off), n); off <= una.Diff(start) {
					done++
				}
			}
			if src.released != done || s.Outstanding() != len(src.made)-done {
				t.Fatalf("seed %d: acknowledged %d: released %d, want %d", seed, una.Diff(start),
					src.released, done)
			}
		}
	}
}

// TestSenderNext checks the calls of Next to the source, and its result when room is short.
//
//req:rfc5044-3-2 rfc5044-4.5-2 rfc5044-5.1-1 rfc5041-2.3-1
func TestSenderNext(t *testing.T) {
	t.Run("room below MULPDU", func(t *testing.T) {
		var s Sender
		src := &messageSource{left: 5000}
		s.Init(SenderConfig{}, 0, 1460, src)
		if n, _ := s.Next(1000); n != 1000 || src.asked[0] != 994 {
			t.Errorf("room 1000: %d bytes, source asked for %v", n, src.asked)
		}
		// With less than MinMULPDU the ULPDU is frozen, and waits for more room.
		if n, more := s.Next(50); n != 0 || !more || src.asked[1] != MinMULPDU {
			t.Errorf("room 50: %d, %v, asked %v", n, more, src.asked)
		}
		if n, more := s.Next(135); n != 0 || !more {
			t.Errorf("room 135: %d, %v", n, more)
		}
		if n, more := s.Next(1460); n != 136 || !more {
			t.Errorf("room 1460 for the waiting ULPDU of 128: %d, %v", n, more)
		}
		if n, _ := s.Next(1460); n != 1460 || len(src.asked) != 3 {
			t.Errorf("the next one: %d bytes, asked %v", n, src.asked)
		}
	})
	t.Run("EMSS below the smallest FPDU", func(t *testing.T) {
		for _, markers := range []bool{false, true} {
			var s Sender
			src := &messageSource{left: 1 << 10}
			s.Init(SenderConfig{Framing: Framing{Markers: markers}, Pack: true}, 0, 100, src)
			sum := 0
			for n, more := s.Next(100); n > 0; n, more = s.Next(100) {
				if n > MinFPDU || more != (src.left > 0) {
					t.Errorf("%d bytes, more %v", n, more)
				}
				sum += n
			}
			for _, a := range src.asked {
				if a != MinMULPDU {
					t.Errorf("source asked for %d bytes", a)
				}
			}
			if sum < 8*136 {
				t.Errorf("markers %v: %d bytes in all, want 8 FPDUs", markers, sum)
			}
		}
	})
	t.Run("EMSS fell below the ULPDU that waits", func(t *testing.T) {
		var s Sender
		s.Init(SenderConfig{}, 0, 1460, &messageSource{left: 1000, most: 1000})
		s.waiting, s.waitingLen = ulpdu.Ref{ID: 1}, 1000
		s.SetEMSS(500)
		if n, more := s.Next(400); n != 0 || !more {
			t.Errorf("room 400: %d, %v", n, more)
		}
		if n, _ := s.Next(500); n != 1008 {
			t.Errorf("room of the EMSS: %d bytes, want the whole FPDU for TCP to cut", n)
		}
	})
	t.Run("runs", func(t *testing.T) {
		for _, most := range []int{0, 500, 1434, 1440, 1442} { // bytes of a ULPDU; 0 means no limit
			for i := range 8 {
				cfg := SenderConfig{Pack: i&1 > 0, Framing: Framing{Markers: i&2 > 0, CRC: true}}
				var s [2]Sender
				var src [2]*messageSource
				var sizes [2][]int // length of each segment
				for k := range s {
					src[k] = &messageSource{left: 150_000 + i, most: most}
					s[k].Init(cfg, seq.Num(i*1000), 1448+i&4/2, src[k])
					for n, more := s[k].Next(1448); n > 0; n, more = s[k].Next(1448) {
						sizes[k] = append(sizes[k], n)
						if r, m := s[k].NextRun(n, k*5); r > 0 {
							sizes[k] = append(sizes[k], slices.Repeat([]int{n}, r)...)
							more = m
						}
						if more != (src[k].left > 0 || s[k].waitingLen > 0) {
							t.Errorf("%d, %+v: more %v, %d left", most, cfg, more,
								src[k].left)
						}
					}
				}
				if !slices.Equal(sizes[0], sizes[1]) || !slices.Equal(s[0].ring, s[1].ring) ||
					!slices.Equal(src[0].asked, src[1].asked) {
					t.Errorf("%d, %+v: %d segments, by runs %d\n%v\n%v", most, cfg, len(sizes[0]),
						len(sizes[1]), sizes[0], sizes[1])
				}
			}
		}
	})
	t.Run("nothing to send", func(t *testing.T) {
		var s Sender
		s.Init(SenderConfig{}, 0, 1460, &messageSource{})
		if n, more := s.Next(1460); n != 0 || more {
			t.Errorf("%d, %v", n, more)
		}
	})
	t.Run("packed", func(t *testing.T) {
		var s Sender
		src := &messageSource{left: 100 * 50, most: 100}
		s.Init(SenderConfig{Pack: true}, 0, 1460, src)
		n, more := s.Next(1460) // FPDUs of 108 bytes until fewer than MinMULPDU would fit
		if n != 12*108 && n != 13*108 || !more {
			t.Errorf("%d bytes (%.1f FPDUs), more %v", n, float64(n)/108, more)
		}
		for _, a := range src.asked {
			if a < MinMULPDU {
				t.Errorf("source asked for %d bytes", a)
			}
		}
	})
	t.Run("unpacked", func(t *testing.T) {
		var s Sender
		s.Init(SenderConfig{}, 0, 1460, &messageSource{left: 500, most: 100})
		if n, _ := s.Next(1460); n != 108 {
			t.Errorf("%d bytes, want one FPDU of 108", n)
		}
	})
	t.Run("many descriptors", func(t *testing.T) {
		var s Sender
		src := &messageSource{left: 10 * (maxDescriptors + 10), most: 10}
		s.Init(SenderConfig{}, 0, 1460, src)
		for n := 1; n > 0; {
			n, _ = s.Next(1460)
		}
		if s.Outstanding() != maxDescriptors {
			t.Errorf("%d outstanding, want the limit %d", s.Outstanding(), maxDescriptors)
		}
		s.Acked(16)
		if n, _ := s.Next(1460); n == 0 {
			t.Error("no room although one FPDU was acknowledged")
		}
	})
	t.Run("EMSS", func(t *testing.T) {
		var s Sender
		s.Init(SenderConfig{Framing: Framing{Markers: true}}, 0, 1448,
			&messageSource{left: 1 << 20})
		a := s.MULPDU()
		s.SetEMSS(1000)
		if b := s.MULPDU(); a != 1430 || b != 986 {
			t.Errorf("MULPDU %d, then %d", a, b)
		}
		if n, _ := s.Next(1448); n > 1000 {
			t.Errorf("segment of %d bytes after the EMSS fell to 1000", n)
		}
	})
}

// TestFillCutKeepsBoundaries checks that parts of one FPDU that are sent one after the other fit together, although the
// source's memory changes in between.
//
//req:rfc5044-5.1-1
func TestFillCutKeepsBoundaries(t *testing.T) {
	var s Sender
	src := &messageSource{left: 1000}
	s.Init(SenderConfig{Framing: Framing{Markers: true, CRC: true}}, 5, 1460, src)
	n, _ := s.Next(1460)
	want := src.stream(s.cfg.Framing)
	got := make([]byte, n)
	s.Fill(seq.Of(5, 600), got)
	src.fill = 1
	s.Fill(seq.Range{Start: 605, End: seq.Num(5).Add(n)}, got[600:])
	if !bytes.Equal(got, want) {
		t.Error("the parts do not make one FPDU")
	}
	s.Acked(seq.Num(5).Add(n))
	src.left = 500
	m, _ := s.Next(1460)
	a, b := make([]byte, m), make([]byte, m)
	s.Fill(seq.Of(seq.Num(5).Add(n), m), a)
	s.Fill(seq.Of(seq.Num(5).Add(n), m-1), b)
	if !bytes.Equal(a[:m-1], b[:m-1]) {
		t.Error("the scratch buffer is that of another FPDU")
	}
}
