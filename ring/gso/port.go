// Package gso transmits TCP segments in blocks through the kernel's segmentation offload. A block is one frame with one
// set of headers that holds consecutive segments of one connection. A Port, a decorator of a ring.Port, passes it to a
// packet socket with PACKET_VNET_HDR (packet(7), linux/virtio_net.h), and the kernel or the NIC cuts it at the segment
// boundaries, so that each segment begins with an FPDU. All other frames, and all received ones, use the Port below.
//
// A block uses the host's output path: its queueing discipline applies, and packet sockets see it. A veth with TSO
// delivers the block uncut, with a TCP checksum of the pseudo-header only. TSO of a veth is off while its peer has a
// native XDP program.
//
// Three alternatives brought no benefit. A transmit ring of the packet socket (PACKET_TX_RING) has 0.93 times the rate
// at MTU 1500 and 0.88 times at 9000, because software segmentation copies pages of user space (skb_orphan_frags).
// Blocks of at most 32 KiB have 0.93 and 0.84 times the rate. PACKET_QDISC_BYPASS drops frames that need segmentation.
package gso

import (
	"errors"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// Stats are the counters of a Port.
type Stats struct {
	Blocks   uint64 // blocks passed to the kernel
	Segments uint64 // segments in these blocks
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

// Send implements ring.Port. The frame waits if a block waits.
func (p *Port) Send(b ring.TxBuf, n int) {
	p.stats.Single++
	if p.n > 0 {
		p.after = append(p.after, frame{b, n})
		return
	}
	p.Port.Send(b, n)
	p.queued = true
}

// Block implements ring.Port. It first sends the waiting block, and returns nil if the kernel does not accept that now.
func (p *Port) Block() []byte {
	if p.n > 0 && p.flushBlock() != ring.StateOK {
		return nil
	}
	return p.block.Frame()
}

// SendBlock implements ring.Port. If the kernel does not accept the block now, the block waits: Block and Flush retry.
func (p *Port) SendBlock(b []byte, s ring.Shape) {
	p.n, p.shape = len(b), Shape(s)
	p.flushBlock()
}

// flushBlock sends earlier frames, the waiting block, and then the frames that waited for it. If it returns a state
// other than ring.StateOK, the block still waits.
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

// flushFrames calls Flush of the Port below if frames may wait there.
func (p *Port) flushFrames() ring.State {
	if !p.queued {
		return ring.StateOK
	}
	st := p.Port.Flush()
	p.queued = st != ring.StateOK
	return st
}

// Flush implements ring.Port. It sends the waiting block and all frames.
func (p *Port) Flush() ring.State {
	if p.n > 0 {
		if st := p.flushBlock(); st != ring.StateOK {
			return st
		}
	}
	return p.flushFrames()
}

// Info implements ring.Port: it returns the Info of the Port below, with Blocks set.
func (p *Port) Info() ring.Info {
	i := p.Port.Info()
	i.Blocks = true
	return i
}

// Stats implements ring.Port. It adds the segments of blocks to the counters of the Port below.
func (p *Port) Stats() ring.Stats {
	s := p.Port.Stats()
	s.TxPackets += p.stats.Segments
	s.TxCompleted += p.stats.Segments
	return s
}

// Close closes the socket and the Port below.
func (p *Port) Close() error { return errors.Join(p.sender.Close(), p.Port.Close()) }
