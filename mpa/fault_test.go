package mpa

import (
	"bytes"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// TestPlacePanics: Place panics because memory cannot be accessed, and the panic passes through Offer or Advance. No
// record and no block of the pool is lost, whichever way the FPDU arrives.
func TestPlacePanics(t *testing.T) {
	ways := map[string]func(g *rig, n int){
		"aligned": func(g *rig, n int) { g.offer(g.borders[n], g.borders[n+1]) },
		"in pieces": func(g *rig, n int) {
			at := g.borders[n]
			g.offer(at, at+10)
			g.offer(at+10, g.borders[n+1])
		},
		"refused": func(g *rig, n int) {
			if n == 0 {
				g.offer(g.borders[1], len(g.stream))
				g.offer(0, g.borders[1])
			}
		},
		"together": func(g *rig, n int) {
			if n == 0 {
				g.offer(0, len(g.stream))
			}
		},
	}
	for _, f := range []Framing{{CRC: true}, {Markers: true, CRC: true}} {
		for name, offer := range ways {
			for victim := range 4 {
				g := newRig(t, f, 700, 900, 800, 600)
				g.sink.refuse = func(u []byte, inOrder bool) *ulpdu.Error {
					if inOrder && int(u[0]) == victim+1 {
						panic("gone")
					}
					if !inOrder {
						return ulpdu.Newf(ulpdu.DDP, 2, 2, "not yet")
					}
					return nil
				}
				panicked := func() (yes bool) {
					defer func() { yes = recover() == "gone" }()
					for n := range 4 {
						offer(g, n)
						g.advance(min(g.borders[n+1], int(g.r.inOrder.end)))
					}
					return false
				}()
				g.r.Release()
				p := g.r.cfg.Pool
				if !panicked || p.recordsUsed != 0 || p.used != 0 || g.r.recordsUsed != 0 {
					t.Errorf("%+v, %s, FPDU %d: panicked %v, %d records and %d blocks are lost", f,
						name, victim, panicked, p.recordsUsed, p.used)
				}
			}
		}
	}
}

// TestSenderUnfreezes: Unfreeze makes the sender forget the FPDUs from a sequence number on, and the waiting ULPDU.
// They are never sent; others take their place in the stream. If no FPDU begins at the number, it does nothing.
func TestSenderUnfreezes(t *testing.T) {
	for _, f := range []Framing{{CRC: true}, {Markers: true, CRC: true}} {
		src := &messageSource{left: 8000, most: 900}
		var s Sender
		s.Init(SenderConfig{Framing: f, Pack: true}, 1000, 1448, src)
		at := []seq.Num{1000}
		for range 4 {
			n, _ := s.Next(1448)
			at = append(at, at[len(at)-1].Add(n))
		}
		dst := make([]byte, 1448)
		if !s.Fill(seq.Range{Start: at[0], End: at[1]}, dst) || s.Unfreeze(at[1].Add(4)) ||
			s.Unfreeze(at[4]) || s.Outstanding() != len(src.made) && s.waitingLen == 0 {
			t.Fatalf("%+v: %d FPDUs of %d", f, s.Outstanding(), len(src.made))
		}
		if !s.Unfreeze(at[1]) || s.Fill(seq.Range{Start: at[1], End: at[2]}, dst) {
			t.Fatalf("%+v: %d FPDUs", f, s.Outstanding())
		}
		id := len(src.made)
		n, _ := s.Next(1448)
		u := make([]byte, src.made[id])
		for i := range u {
			u[i] = src.payloadByte(uint64(id), i)
		}
		want := reference(f, at[1].Diff(at[0]), u)
		if n < len(want) || !s.Fill(seq.Range{Start: at[1], End: at[1].Add(n)}, dst) ||
			!bytes.Equal(dst[:len(want)], want) {
			t.Errorf("%+v: Next gives %d bytes, which are not those of ULPDU %d", f, n, id)
		}
	}
}
