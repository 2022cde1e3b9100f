package sim

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/ring/gso"
)

// cutter is the kernel's side of a packet socket. It cuts a block, which is one buffer of many segments, into frames.
// They leave at once and bypass the transmit ring.
type cutter struct {
	emit func(frame []byte)
	rnd  *rand.Rand
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
		c.emit(s.Segment(nil, b.Frame()[:n], i))
		c.cut.Add(1)
	}
	return 0
}

func (c *cutter) Close() error { return nil }

// blocks makes the next host send blocks, and cut counts their segments.
func (s *scenario) blocks(cfg *HostConfig, rnd *rand.Rand, cut *atomic.Uint64) {
	i := len(s.hosts)
	emit := func(frame []byte) { s.hosts[i].Emit(frame) }
	cfg.Kernel.Poller = false // frames in the ring leave by system calls only
	cfg.Wrap = func(p ring.Port) (ring.Port, error) {
		return gso.Wrap(p, &cutter{emit, rnd, cut}), nil
	}
}

// TestBlocks runs seeds on ports that accept blocks.
func TestBlocks(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 50
	}
	var cut, frames atomic.Uint64
	each(t, 1, n, func(seed uint64) error {
		rnd := rand.New(rand.NewPCG(seed, 5))
		s := draw(seed, nil, func(s *scenario, cfg *HostConfig) { s.blocks(cfg, rnd, &cut) })
		err := s.guard()
		frames.Add(s.world.Frames())
		if err != nil {
			err = fmt.Errorf("seed %d: %w\n  scenario: %v", seed, err, s)
		}
		return err
	})
	t.Logf("%d of %d frames were sent in blocks", cut.Load(), frames.Load())
	if cut.Load() == 0 {
		t.Error("no blocks")
	}
}
