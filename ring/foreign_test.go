package ring

import (
	"bytes"
	"testing"
	"time"

	"github.com/asavie/xdp"
)

// foreign opens a socket of an independent AF_XDP implementation on h.
func (h *host) foreign(t *testing.T) *xdp.Socket {
	t.Helper()
	var s *xdp.Socket
	h.in(t, func() (err error) {
		s, err = xdp.NewSocket(h.index, 0, &xdp.SocketOptions{
			NumFrames: 256, FrameSize: 2048, FillRingNumDescs: 128, CompletionRingNumDescs: 128,
			RxRingNumDescs: 128, TxRingNumDescs: 128,
		})
		return err
	})
	t.Cleanup(func() { s.Close() })
	h.redirect(t, 0, s.FD())
	return s
}

// Frames of all sizes that we send are received by the independent implementation, and the other way round.
func TestForeignImplementation(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	own, other := a.open(t, Config{RxFrames: 256, TxSlots: 64}), b.foreign(t)
	sizes := sizesBetween(60, 1514, 1)
	t.Run("own to foreign", func(t *testing.T) { toForeign(t, own, other, sizes) })
	t.Run("foreign to own", func(t *testing.T) { fromForeign(t, other, own, sizes) })
}

func toForeign(t *testing.T, own *Socket, other *xdp.Socket, sizes []int) {
	end := time.Now().Add(10 * time.Second)
	for sent, got := 0, 0; got < len(sizes); {
		other.Fill(other.GetDescs(other.NumFreeFillSlots()))
		for sent < len(sizes) && sent-got < 16 {
			transmit(t, own, newFrame(sizes[sent], uint32(sent)))
			sent++
		}
		own.Flush()
		own.Reap()
		audit(t, own, nil)
		n, _, err := other.Poll(10)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range other.Receive(n) {
			f := other.GetFrame(d)
			if !ours(f) {
				continue
			}
			if !bytes.Equal(f, newFrame(sizes[got], uint32(got))) {
				t.Fatalf("frame %d of %d bytes arrived as %d other bytes", got, sizes[got],
					len(f))
			}
			got++
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d frames in 10 s", got, len(sizes))
		}
	}
}

func fromForeign(t *testing.T, other *xdp.Socket, own *Socket, sizes []int) {
	end := time.Now().Add(10 * time.Second)
	batch := make([]Packet, 8)
	for sent, got := 0, 0; got < len(sizes); {
		if n := min(16-(sent-got), len(sizes)-sent, other.NumFreeTxSlots()); n > 0 {
			descs := other.GetDescs(n)
			for i := range descs {
				descs[i].Len = uint32(sizes[sent])
				pattern(other.GetFrame(descs[i]), uint32(sent))
				sent++
			}
			other.Transmit(descs)
		}
		other.Complete(other.NumCompleted())
		for i := range batch[:own.Recv(batch)] {
			f := batch[i].Frag(0)
			if ours(f) {
				if !bytes.Equal(f, newFrame(sizes[got], uint32(got))) {
					t.Fatalf("frame %d of %d bytes arrived as %d other bytes", got, sizes[got],
						len(f))
				}
				got++
			}
			own.Release(&batch[i])
		}
		own.Refill()
		audit(t, own, nil)
		if time.Now().After(end) {
			t.Fatalf("%d of %d frames in 10 s", got, len(sizes))
		}
	}
}
