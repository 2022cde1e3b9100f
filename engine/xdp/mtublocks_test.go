package xdp_test

import (
	"sync/atomic"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// blockWatch is a Port that watches the blocks that it sends and the packets that it receives.
type blockWatch struct {
	ring.Port
	mtu      atomic.Int64
	packet   atomic.Int64 // IP packet length of the segments of the last sent block
	blocks   atomic.Int64 // sent blocks whose segments fill mtu
	received atomic.Int64 // packets of more than 4,000 bytes
	longest  atomic.Int64 // bytes of the longest received packet
}

func (p *blockWatch) SendBlock(b []byte, s ring.Shape) {
	n := int64(s.Headers - s.IPAt + s.Payload)
	if mtu := p.mtu.Load(); n > mtu-8 && n <= mtu { // the payload of a segment is a multiple of 4 bytes
		p.blocks.Add(1)
	}
	p.packet.Store(n)
	p.Port.SendBlock(b, s)
}

func (p *blockWatch) Recv(batch []ring.Packet) int {
	n := p.Port.Recv(batch)
	for i := range batch[:n] {
		size := int64(batch[i].Len())
		p.longest.Store(max(p.longest.Load(), size))
		if size > 4000 {
			p.received.Add(1)
		}
	}
	return n
}

// TestBlocksFollowMTU lowers the MTU of both ends while blocks move. All data arrives, and later blocks have segments
// of the new MTU. A generic program still receives the blocks whole. In front of a native one the kernel cuts them, and
// no packet exceeds the MTU.
func TestBlocksFollowMTU(t *testing.T) {
	for _, mode := range []bpf.Mode{bpf.ModeGeneric, bpf.ModeNative} {
		t.Run(mode.String(), func(t *testing.T) {
			const before, after, enough = 1500, 1200, 30
			var ports []*blockWatch
			underWritesOf(t, func(c *xdp.Config) {
				c.Transmit, c.XDPMode = xdp.TransmitGSO, mode
				c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
					w := &blockWatch{Port: p}
					ports = append(ports, w)
					return w, nil
				}
			}, func(_ *xdp.Device, tn *topo.Net) {
				from, to := ports[0], ports[1]
				awaitBlocks := func(mtu int64) {
					from.mtu.Store(mtu)
					from.blocks.Store(0)
					done := func() bool { return from.blocks.Load() >= enough }
					if !within(5*time.Second, done) || from.packet.Load() > mtu {
						t.Errorf("%d blocks with packets of %d bytes; of the last block: %d bytes",
							from.blocks.Load(), mtu, from.packet.Load())
					}
				}
				awaitBlocks(before)
				for _, h := range []*topo.Host{tn.A, tn.B} {
					nic, err := h.Netlink().LinkByName(h.Link.Name)
					if err == nil {
						err = h.Netlink().LinkSetMTU(nic, after)
					}
					if err != nil {
						t.Error(err)
					}
				}
				whole := to.received.Load()
				awaitBlocks(after)
				whole = to.received.Load() - whole
				t.Logf("%d blocks received whole; longest packet: %d bytes", whole,
					to.longest.Load())
				switch {
				case mode == bpf.ModeGeneric && whole < enough/4:
					t.Errorf("%d blocks received whole after the change", whole)
				case mode == bpf.ModeNative && to.longest.Load() > before+14:
					t.Errorf("a packet of %d bytes", to.longest.Load())
				}
			})
		})
	}
}

// within reports whether ok returns true within d.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}
