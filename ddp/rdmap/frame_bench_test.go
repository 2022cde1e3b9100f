package rdmap

import (
	"fmt"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa"
	"xwarp/tcp/seq"
)

// BenchmarkFrames makes the FPDUs of long Writes, from the work request to the bytes of a segment; an
// operation is one FPDU. No cache holds the source, and the destination is as large as a transmit ring. With
// a small EMSS little time goes into the payload.
func BenchmarkFrames(b *testing.B) {
	for _, emss := range []int{148, 1448, 8948} {
		for _, markers := range []bool{false, true} {
			b.Run(fmt.Sprintf("emss=%d/markers=%v", emss, markers), func(b *testing.B) {
				benchFrames(b, emss, mpa.Framing{Markers: markers, CRC: true})
			})
		}
	}
}

// BenchmarkNext measures Next alone, without writing the bytes.
func BenchmarkNext(b *testing.B) { benchFrames(b, 1448, mpa.Framing{}) }

func benchFrames(b *testing.B, emss int, f mpa.Framing) {
	const length, slot = 64 << 20, 1 << 12
	h := newHost(b, 1).open(nil, Params{Version: ddp.IETF, IRD: 1, ORD: 1})
	m := h.region(length, ddp.Attr{})
	wr := SendWR{Op: WRWrite, SGL: []SGE{sge(m, 0, length)}, RemoteSTag: 5}
	var s mpa.Sender
	s.Init(mpa.SenderConfig{Framing: f, Pack: true}, 0, emss, h.qp)
	ring := make([]byte, 2<<20+emss)
	at, to := seq.Num(0), 0
	for b.Loop() {
		n, more := s.Next(emss)
		if f.CRC && !s.Fill(seq.Of(at, n), ring[to:to+emss]) {
			b.Fatal("Fill failed")
		}
		if to += (emss + slot) &^ (slot - 1); to > len(ring)-emss {
			to = 0
		}
		at = at.Add(n)
		if !more || n == 0 {
			if err := h.qp.PostSend(&wr); err != nil {
				b.Fatal(err)
			}
		}
		if s.Outstanding() > 256 || n == 0 {
			s.Acked(at)
			h.cqes = h.cqes[:0]
		}
	}
}
