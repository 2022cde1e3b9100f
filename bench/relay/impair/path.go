// Package impair simulates one direction of a bad path: it loses, reorders, duplicates, corrupts, re-cuts, delays,
// queues and refuses Ethernet frames.
//
// It has no clock, no socket and no goroutine: frames go in with the time of their arrival and come out when they are
// due. The same seed, the same frames and the same times give the same frames out, so a failure can be replayed.
//
// A frame passes the stages in this order:
//
//	blackhole ─ MTU ─ re-cutting ─ loss ─ corruption ─ duplication ─ queue with rate and ECN ─ delay ─ reordering
//
// ARP, neighbour discovery and everything that is not IP bypass all of them. The package finds IP and TCP headers by
// its own code, but computes checksums by package wire of the engine. Its tests check both with gopacket.
package impair

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"xwarp/tcp/tick"
)

// Path is one direction of a bad path. It is not for concurrent use. The times that its methods are given must not
// decrease.
type Path struct {
	cfg     Config
	pool    *Pool
	linkMTU int
	now     tick.Time
	c       Counters

	// One generator per stage, so that switching one stage on does not change the choices of another.
	lossRand, duplicateRand, corruptRand, reorderRand *rand.Rand

	recut     recutter
	line      line
	reorder   []*Buf // frames held for reordering, in order of arrival
	ready     fifo   // frames for Pop
	reply     fifo   // frames for Reply
	maxFrames int    // maximum number of frames in the line
}

// Options are the settings of a Path that cannot change later.
type Options struct {
	// Seed determines all random choices.
	Seed uint64
	// LinkMTU is the MTU of the link: re-cutting makes no larger IP packet. 0 means DefaultLinkMTU.
	LinkMTU int
	// Pool provides the buffers. Several paths may share it if one goroutine at a time uses them.
	Pool *Pool
}

// New returns a path. The buffers of Options.Pool must be large enough for LinkMTU and FrameOverhead.
func New(cfg Config, o Options) (*Path, error) {
	if o.LinkMTU == 0 {
		o.LinkMTU = DefaultLinkMTU
	}
	if o.Pool == nil || o.Pool.Size() < o.LinkMTU+FrameOverhead {
		return nil, fmt.Errorf("impair: the pool must hold frames of %d bytes for MTU %d",
			o.LinkMTU+FrameOverhead, o.LinkMTU)
	}
	p := &Path{pool: o.Pool, linkMTU: o.LinkMTU, maxFrames: maxHeldBytes / o.Pool.Size()}
	stage := uint64(0)
	generator := func() *rand.Rand {
		stage++
		return rand.New(rand.NewPCG(o.Seed, stage))
	}
	p.lossRand, p.duplicateRand, p.corruptRand, p.reorderRand = generator(), generator(),
		generator(), generator()
	p.recut.init(p, generator())
	return p, p.Set(cfg)
}

// Set changes the impairments. Frames already inside keep their delay, but pass the stages that are still ahead of them
// with the new impairments.
func (p *Path) Set(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.MTU > p.linkMTU {
		return errors.New("impair: the path's MTU is above the link's")
	}
	p.cfg = cfg.withDefaults()
	if !cfg.Resegment {
		p.recut.flushAll(p.now)
	}
	return nil
}

// Counters returns the counts so far.
func (p *Path) Counters() Counters { return p.c }

// Push gives the path a frame that arrives now. The path owns the buffer from then on.
func (p *Path) Push(b *Buf, now tick.Time) {
	p.advance(now)
	p.c.In++
	b.arrive, b.view = now, look(b.Data)
	if b.view.kind == kindOther || b.view.kind == kindND {
		p.c.Untouched++
		p.ready.push(b)
		return
	}
	switch {
	case p.cfg.Blackhole:
		p.c.Blackholed++
		p.pool.Put(b)
	case p.cfg.MTU > 0 && b.view.end-b.view.ip > p.cfg.MTU:
		p.c.TooBig++
		p.replyTooBig(b)
		p.pool.Put(b)
	case p.cfg.Resegment && b.view.kind == kindTCP:
		p.recut.add(b, now)
	default:
		p.damage(b, now)
	}
}

// Pop returns the next frame that is due, nil when there is none now. The caller owns it and puts it back
// into the pool.
func (p *Path) Pop(now tick.Time) *Buf {
	p.advance(now)
	b := p.ready.pop()
	if b != nil {
		p.c.Out++
		p.c.OutBytes += uint64(len(b.Data))
	}
	return b
}

// Reply returns the next frame for the other direction, nil when there is none: an ICMP error that this path sends as a
// router. The caller sends it at once and puts it back into the pool.
func (p *Path) Reply() *Buf { return p.reply.pop() }

// Deadline returns the earliest time at which Pop may return a frame without a further Push. It returns tick.Never if
// no frame is inside.
func (p *Path) Deadline() tick.Time {
	if p.ready.n > 0 {
		return p.now
	}
	d := min(p.recut.next, p.line.deadline())
	for _, b := range p.reorder {
		d = min(d, b.due)
	}
	return d
}

// advance moves the frames that are due by now to their next stage.
func (p *Path) advance(now tick.Time) {
	p.now = max(p.now, now)
	if p.recut.next <= p.now {
		p.recut.flushDue(p.now)
	}
	for b := p.line.arrived(p.now); b != nil; b = p.line.arrived(p.now) {
		p.shuffle(b)
	}
	if len(p.reorder) > 0 {
		p.releaseHeld(func(b *Buf) bool { return b.due <= p.now })
	}
}

// damage applies loss, corruption and duplication to a frame, and passes it on to the queue.
func (p *Path) damage(b *Buf, now tick.Time) {
	if hit(p.lossRand, p.cfg.Loss) {
		p.c.Lost++
		p.pool.Put(b)
		return
	}
	if hit(p.corruptRand, p.cfg.Corrupt) {
		p.corrupt(b)
	}
	if hit(p.duplicateRand, p.cfg.Duplicate) {
		p.c.Duplicated++
		twin := p.pool.copyOf(b)
		p.enqueue(b, now)
		p.enqueue(twin, now)
		return
	}
	p.enqueue(b, now)
}

// hit returns true with probability fraction. With fraction 0 it draws no random number.
func hit(r *rand.Rand, fraction float64) bool { return fraction > 0 && r.Float64() < fraction }

// shuffle is the reordering stage. It either holds b until some later frames have passed it or ReorderHold is over, or
// makes b ready now, ahead of the frames that are held.
func (p *Path) shuffle(b *Buf) {
	if hit(p.reorderRand, p.cfg.Reorder) && len(p.reorder) < maxHeldForReorder {
		b.ahead = 1 + p.reorderRand.IntN(p.cfg.ReorderDepth)
		b.due = p.now.Add(p.cfg.ReorderHold)
		p.reorder = append(p.reorder, b)
		return
	}
	p.ready.push(b)
	if len(p.reorder) == 0 {
		return
	}
	for _, h := range p.reorder {
		h.ahead--
		h.passed = true
	}
	p.releaseHeld(func(b *Buf) bool { return b.ahead <= 0 })
}

// releaseHeld makes those held frames ready for which free returns true.
func (p *Path) releaseHeld(free func(*Buf) bool) {
	kept := p.reorder[:0]
	for _, b := range p.reorder {
		if !free(b) {
			kept = append(kept, b)
			continue
		}
		if b.passed {
			p.c.Reordered++
		}
		p.ready.push(b)
	}
	p.reorder = kept
}
