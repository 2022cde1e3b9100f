package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/ring/gso"
)

// cutter is a Port below a gso.Port, and its kernel: it sends the frames of blocks like any other.
type cutter struct {
	ring.Port
	rnd  *rand.Rand
	wait [][]byte // frames before those that are sent now
	cut  *atomic.Uint64
}

func (c *cutter) Send(b gso.Block, n int, s *gso.Shape) unix.Errno {
	switch c.rnd.IntN(16) {
	case 0:
		return unix.EAGAIN
	case 1:
		if c.rnd.IntN(8) == 0 {
			return unix.ENOBUFS
		}
	}
	for i := range s.Segments(n) {
		c.wait = append(c.wait, s.Segment(nil, b.Frame()[:n], i))
		c.cut.Add(1)
	}
	return 0
}

// below is the Port's half of cutter.
type below struct{ *cutter }

func (b below) Send(buf ring.TxBuf, n int) {
	if len(b.wait) == 0 {
		b.Port.Send(buf, n)
		return
	}
	b.wait = append(b.wait, bytes.Clone(buf.Data[:n]))
	b.Port.CancelTx(buf)
}

func (b below) Flush() ring.State {
	for len(b.wait) > 0 {
		buf, ok := b.Port.AllocTx()
		if !ok {
			b.Port.Flush()
			b.Port.Reap()
			return ring.StateAgain
		}
		b.Port.Send(buf, copy(buf.Data, b.wait[0]))
		b.wait = b.wait[1:]
	}
	return b.Port.Flush()
}

func (c *cutter) Close() error { return nil }

func (b below) Close() error { return b.Port.Close() }

// TestBlocks runs seeds on ports that take blocks.
func TestBlocks(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 50
	}
	var cut, frames atomic.Uint64
	each(t, 1, n, func(seed uint64) error {
		s := draw(seed, nil, func(string, func() int64) func(ring.Port) (ring.Port, error) {
			return func(p ring.Port) (ring.Port, error) {
				c := &cutter{Port: p, rnd: rand.New(rand.NewPCG(seed, 5)), cut: &cut}
				return gso.Wrap(below{c}, c), nil
			}
		})
		err := s.guard()
		frames.Add(s.w.Frames())
		if err != nil {
			err = fmt.Errorf("seed %d: %w\n  scenario: %v", seed, err, s)
		}
		return err
	})
	t.Logf("%d of %d frames came in blocks", cut.Load(), frames.Load())
	if cut.Load() == 0 {
		t.Error("no blocks")
	}
}
