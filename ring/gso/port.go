// Package gso transmits TCP segments in blocks through the kernel's segmentation offload. A block has consecutive
// segments of one connection as one frame with one set of headers. A Port, a decorator of ring.Ports, passes it to a
// packet socket with PACKET_VNET_HDR (packet(7), linux/virtio_net.h), and the kernel or the NIC cuts it at the segment
// boundaries, so that each segment begins with an FPDU. All other frames, and all received ones, use the Port below.
//
// A block uses the host's output path: its queueing discipline applies, and packet sockets see it. A veth delivers
// it whole, with a TCP checksum of the pseudo-header only, unless TSO is off; a native XDP program of the peer turns
// it off.
//
// Measured without benefit: a transmit ring of the packet socket (PACKET_TX_RING), because software segmentation copies
// pages of user space (skb_orphan_frags), 0.93 of the rate at MTU 1500 and 0.88 at 9000; shorter blocks, 0.93 and 0.84
// at 32 KiB; PACKET_QDISC_BYPASS, which drops frames that need segmentation.
package gso

import (
	"errors"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// Stats are the counters of a Port.
type Stats struct {
	Blocks   uint64 // passed to the kernel
	Segments uint64 // in blocks
	Single   uint64 // frames sent through the Port below
	Dropped  uint64 // blocks that the kernel refused permanently, or dropped in part
}

// Port adds blocks to a ring.Port. A block waits until earlier frames have been sent, and later frames wait for the
// block.
type Port struct {
	ring.Port
	sender BlockSender
	stats  Stats
	block  Block
	shape  Shape
	n      int     // length of the waiting block; 0: none
	queued bool    // frames in the Port below may be unsent
	after  []frame // frames sent after the waiting block
}

// frame holds the arguments of Send.
type frame struct {
	buf ring.TxBuf
	n   int
}

var _ ring.Port = (*Port)(nil)

// BlockSender is Sender, or a replacement for tests. Its Send fails with the errors of Sender.Send.
type BlockSender interface {
	Send(b Block, n int, c *Shape) unix.Errno
	Close() error
}

// Wrap returns p with blocks through s. The returned Port owns p and s.
func Wrap(p ring.Port, s BlockSender) *Port {
	return &Port{Port: p, sender: s, block: NewBlock(MaxBlock)}
}

// GSOStats returns the counters.
func (p *Port) GSOStats() Stats { return p.stats }

// Send is Port.Send.
func (p *Port) Send(b ring.TxBuf, n int) {
	p.stats.Single++
	if p.n > 0 {
		p.after = append(p.after, frame{b, n})
		return
	}
	p.Port.Send(b, n)
	p.queued = true
}

// Block is ring.Port's.
func (p *Port) Block() []byte {
	if p.n > 0 && p.flushBlock() != ring.StateOK {
		return nil
	}
	return p.block.Frame()
}

// SendBlock is ring.Port's. Flush retries a block that the kernel does not accept now.
func (p *Port) SendBlock(b []byte, s ring.Shape) {
	p.n, p.shape = len(b), Shape(s)
	p.flushBlock()
}

// flushBlock sends the waiting block after earlier frames.
func (p *Port) flushBlock() ring.State {
	if st := p.flushFrames(); st != ring.StateOK {
		return st
	}
	switch p.sender.Send(p.block, p.n, &p.shape) {
	case 0:
		p.stats.Blocks++
		p.stats.Segments += uint64(p.shape.Segments(p.n))
	case unix.EAGAIN, unix.EINTR:
		return ring.StateAgain
	case unix.ENETDOWN:
		return ring.StateDown
	default: // TCP retransmits it
		p.stats.Dropped++
	}
	p.n = 0
	for _, f := range p.after {
		p.Port.Send(f.buf, f.n)
		p.queued = true
	}
	p.after = p.after[:0]
	return ring.StateOK
}

// flushFrames is Flush of the Port below, if frames may wait there.
func (p *Port) flushFrames() ring.State {
	if !p.queued {
		return ring.StateOK
	}
	st := p.Port.Flush()
	p.queued = st != ring.StateOK
	return st
}

// Flush is Port.Flush.
func (p *Port) Flush() ring.State {
	if p.n > 0 {
		if st := p.flushBlock(); st != ring.StateOK {
			return st
		}
	}
	return p.flushFrames()
}

// Info is Port.Info of a Port that takes blocks.
func (p *Port) Info() ring.Info {
	i := p.Port.Info()
	i.Blocks = true
	return i
}

// Stats is Port.Stats including the segments of blocks.
func (p *Port) Stats() ring.Stats {
	s := p.Port.Stats()
	s.TxPackets += p.stats.Segments
	s.TxCompleted += p.stats.Segments
	return s
}

// Close closes the socket and the Port below.
func (p *Port) Close() error { return errors.Join(p.sender.Close(), p.Port.Close()) }
