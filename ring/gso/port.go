package gso

import (
	"errors"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// Stats counts what a Port did.
type Stats struct {
	Blocks   uint64 // handed to the kernel
	Segments uint64 // in blocks
	Single   uint64 // frames that left through the Port below
	Dropped  uint64 // blocks that the kernel refused for good, or dropped some of
}

// Port is a ring.Port that sends runs of segments as blocks. A writer has at most one transmit slot at a time.
type Port struct {
	ring.Port
	sender blockSender
	stats  Stats
	room   int // octets of a slot
	now    run
	// next is where the first frame of another run waits until now has left.
	next   run
	lent   bool // the writer has a slot
	queued bool // frames in the Port below wait for its Flush
	state  ring.State
	saved  [maxHeaders]byte // what a slot covers
}

// blockSender is Sender, or a test's.
type blockSender interface {
	Send(b Block, n int, c *Shape) unix.Errno
	Close() error
}

// maxHeaders is octets of the longest headers that are joined.
const maxHeaders = ethernet + ipv6Header + 60

// run is a block that grows.
type run struct {
	Block
	first segment
	n     int // octets of the frame so far
	count int // segments
	full  bool
}

// Wrap returns p with blocks through s, which belongs to the Port from then on, as p does.
func Wrap(p ring.Port, s *Sender) *Port { return wrap(p, s) }

func wrap(p ring.Port, s blockSender) *Port {
	room := p.Info().TxRoom
	block := func() Block { return NewBlock(MaxBlock + room) }
	return &Port{Port: p, sender: s, room: room, now: run{Block: block()}, next: run{Block: block()}}
}

// GSOStats returns the counters.
func (p *Port) GSOStats() Stats { return p.stats }

// AllocTx is Port.AllocTx: memory right behind the octets of the run, so that a payload written there needs no copy. The
// headers cover the end of the run, which Send puts back.
func (p *Port) AllocTx() (ring.TxBuf, bool) {
	if p.lent || p.now.full && !p.push() {
		return ring.TxBuf{}, false
	}
	p.lent = true
	at := p.now.gap()
	f := p.now.Frame()
	copy(p.saved[:], f[at:p.now.n])
	return ring.TxBuf{Data: f[at : at+p.room : at+p.room]}, true
}

// gap returns where the next frame is written.
func (r *run) gap() int {
	if r.count == 0 {
		return 0
	}
	return r.n - r.first.Headers
}

// restore puts back what a slot covered.
func (p *Port) restore() {
	at := p.now.gap()
	copy(p.now.Frame()[at:p.now.n], p.saved[:])
	p.lent = false
}

// CancelTx is Port.CancelTx.
func (p *Port) CancelTx(ring.TxBuf) { p.restore() }

// Send is Port.Send.
func (p *Port) Send(b ring.TxBuf, n int) {
	frame := b.Data[:n]
	seg, ok := parse(frame)
	r := &p.now
	if r.count == 0 {
		p.lent = false
		r.begin(seg, n, ok)
	} else if ok && seg.seq == r.first.seq+uint32(r.n-r.first.Headers) && seg.Payload <= r.first.Payload && r.first.follows(r.Frame(), frame, &seg) {
		p.restore()
		r.join(&seg)
	} else {
		copy(p.next.Frame(), frame)
		p.next.begin(seg, n, ok)
		p.restore()
		r.full = true
	}
	if r.full {
		p.push()
	}
}

// begin makes the frame of n octets in r the first of a run; one that cannot be joined is a run of its own.
func (r *run) begin(seg segment, n int, joinable bool) {
	r.first, r.n, r.count = seg, n, 1
	r.full = !joinable
}

// join adds the segment whose payload lies behind the run.
func (r *run) join(seg *segment) {
	r.n += seg.Payload
	r.count++
	flags := &r.Frame()[r.first.tcpAt()+flagsAt]
	if *flags &^= flagPSH; seg.psh {
		*flags |= flagPSH
	}
	r.full = seg.Payload < r.first.Payload || r.n+r.first.Payload > MaxBlock
}

// push sends what is full and reports whether there is room for more.
func (p *Port) push() bool {
	for p.now.full {
		if !p.emit(&p.now) {
			return false
		}
		p.now.count, p.now.n, p.now.full = 0, 0, false
		if p.next.count > 0 {
			p.now, p.next = p.next, p.now
		}
	}
	return true
}

// emit sends one run; false: it must be tried again.
func (p *Port) emit(r *run) bool {
	if r.count == 1 {
		b, ok := p.Port.AllocTx()
		if !ok {
			return false
		}
		copy(b.Data, r.Frame()[:r.n])
		p.Port.Send(b, r.n)
		p.queued = true
		p.stats.Single++
		return true
	}
	if p.queued { // in the order that they were written
		p.queued = false
		p.Port.Flush()
	}
	switch e := p.sender.Send(r.Block, r.n, &r.first.Shape); e {
	case 0:
		p.stats.Blocks++
		p.stats.Segments += uint64(r.count)
	case unix.EAGAIN, unix.EINTR:
		p.state = ring.StateAgain
		return false
	case unix.ENETDOWN:
		p.state = ring.StateDown
		return false
	default: // TCP sends it again
		p.stats.Dropped++
	}
	return true
}

// Flush is Port.Flush: the run under way ends.
func (p *Port) Flush() ring.State {
	p.state = ring.StateOK
	if p.lent { // the writer is not done
		return ring.StateOK
	}
	for p.now.count > 0 {
		p.now.full = true
		if !p.push() {
			break
		}
	}
	p.queued = false
	below := p.Port.Flush()
	if p.state != ring.StateOK {
		return p.state
	}
	if p.now.count > 0 && below == ring.StateOK {
		return ring.StateAgain
	}
	return below
}

// Stats is Port.Stats with the segments of blocks among what was sent.
func (p *Port) Stats() ring.Stats {
	s := p.Port.Stats()
	s.TxPackets += p.stats.Segments
	s.TxCompleted += p.stats.Segments
	return s
}

// Close closes the socket and the Port below.
func (p *Port) Close() error { return errors.Join(p.sender.Close(), p.Port.Close()) }
