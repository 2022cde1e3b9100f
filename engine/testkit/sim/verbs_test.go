package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
)

// planMore draws operation i of e from the verbs that a simple program does not use.
func (e *rdmaEnd) planMore(o *op, i, size int, r *rand.Rand, mine, theirs *layout) {
	k := r.IntN(6)
	if i == 0 && k == 3 {
		k = 4 // a responder without an RTR message waits for an FPDU of the initiator
	}
	switch k {
	case 0:
		e.planInvalidate(o, i, r, mine, theirs)
	case 1: // immediate data
		o.wr.Op = []rdmap.WROp{rdmap.WRImm, rdmap.WRImmSE}[r.IntN(2)]
		binary.BigEndian.PutUint64(o.wr.Imm[:], r.Uint64())
		dst := theirs.take(r, 8)
		mine.pending = append(mine.pending, func(e *rdmaEnd, _ *rand.Rand) {
			e.expect(i, area{e.peer, dst, nil}, 8)
		})
	case 2:
		e.planSwap(o, i, r, mine, theirs)
	case 3: // a local region that is not used otherwise
		o.wr.Op = rdmap.WRLocalInv
		mine.pending = append(mine.pending, func(e *rdmaEnd, _ *rand.Rand) {
			e.ops[i].invalidates = e.region()
		})
	default: // a Write without a completion, unless it fails
		o.wr.Op = rdmap.WRWrite
		o.wr.Flags &^= rdmap.Signaled
		src, dst := mine.take(r, size), theirs.take(r, size)
		mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
			o := &e.ops[i]
			randomize(r, e.mem[src:src+size])
			if i == len(e.ops)-1 {
				o.wr.Flags |= rdmap.Signaled // otherwise the peer does not notice the end
			}
			o.wr.SGL = e.sgl(r, src, size)
			o.wr.RemoteTO = ddp.TO(dst)
			o.effect = area{e.peer, dst, bytes.Clone(e.mem[src : src+size])}
		})
	}
}

// binds makes wr a bind of e's window to all of its region. There is only one: a second would invalidate Reads in
// progress through the first.
func (e *rdmaEnd) binds(wr *rdmap.SendWR) {
	const key = 0x5a
	wr.RemoteSTag, wr.Region, wr.Data = e.window.STag()|key, e.mr.STag(), uint64(len(e.mem))
	wr.Access = ddp.RemoteRead | ddp.RemoteWrite | ddp.RemoteAtomic
}

// planInvalidate plans a Send that invalidates a region of the peer.
func (e *rdmaEnd) planInvalidate(o *op, i int, r *rand.Rand, mine, theirs *layout) {
	o.wr.Op = []rdmap.WROp{rdmap.WRSendInv, rdmap.WRSendSEInv}[r.IntN(2)]
	size := r.IntN(100)
	src, dst := mine.take(r, size), theirs.take(r, size)
	mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
		randomize(r, e.mem[src:src+size])
		e.ops[i].wr.SGL = e.sgl(r, src, size)
		e.expect(i, area{e.peer, dst, bytes.Clone(e.mem[src : src+size])}, size)
	})
	theirs.pending = append(theirs.pending, func(p *rdmaEnd, _ *rand.Rand) {
		p.peer.ops[i].invalidates = p.region()
	})
}

// planSwap plans a CmpSwap whose comparison may succeed or fail.
func (e *rdmaEnd) planSwap(o *op, i int, r *rand.Rand, mine, theirs *layout) {
	o.wr.Op = rdmap.WRCmpSwap
	sink, target, right := mine.take(r, 8), theirs.take(r, 8), r.IntN(2) == 0
	o.wr.Data, o.wr.Mask, o.wr.CompareMask = r.Uint64(), r.Uint64(), r.Uint64()
	theirs.pending = append(theirs.pending, func(p *rdmaEnd, r *rand.Rand) {
		o := &p.peer.ops[i]
		randomize(r, p.mem[target:target+8])
		old := binary.NativeEndian.Uint64(p.mem[target:])
		o.wr.RemoteTO, o.wr.Compare = ddp.TO(target), old^^o.wr.CompareMask // the masked bits are equal
		now := old&^o.wr.Mask | o.wr.Data&o.wr.Mask
		if !right {
			o.wr.CompareMask |= 1
			o.wr.Compare ^= 1
			if o.wr.Compare&1 == old&1 {
				o.wr.Compare ^= 1
			}
			now = old
		}
		o.effect = area{p.peer, sink, bytes.Clone(p.mem[target : target+8])}
		o.second = area{p, target, binary.NativeEndian.AppendUint64(nil, now)}
	})
	mine.pending = append(mine.pending, func(e *rdmaEnd, _ *rand.Rand) {
		e.ops[i].wr.SGL = []rdmap.SGE{{TO: ddp.TO(sink), Len: 8}}
	})
}

// expect adds a receive of the peer for the message of operation i.
func (e *rdmaEnd) expect(i int, a area, room int) {
	o := &e.ops[i]
	o.recv = len(e.peer.recvs)
	e.peer.recvs = append(e.peer.recvs, recvBuf{area: a, n: room, from: o})
	o.effect = a
}

// region registers memory that can be invalidated from e's connection only.
func (e *rdmaEnd) region() *ddp.MR {
	m, err := e.table.Register(e.pd, make([]byte, 16),
		ddp.Attr{Access: ddp.RemoteRead, Stream: e.stream()})
	if err != nil {
		panic(err)
	}
	e.extra = append(e.extra, m)
	return m
}

// stream returns the ID of e's stream in its table.
func (e *rdmaEnd) stream() ddp.StreamID {
	if e.share != nil {
		return ddp.StreamID(e.number + 1)
	}
	return 1
}

func (o *op) signaled() bool { return o.wr.Flags&rdmap.Signaled != 0 }

// silent records that the next operation succeeded without a completion.
func (e *rdmaEnd) silent() {
	o := &e.ops[e.acks]
	e.acks++
	if !o.posted {
		e.fail("%v %d is passed, and was not posted", o.wr.Op, e.acks-1)
	}
	o.done, o.status = true, rdmap.Success
}

// special checks the fields of a receive's completion other than its length.
func (e *rdmaEnd) special(c *rdmap.Completion, b *recvBuf) {
	if b.from == nil {
		return
	}
	wr := &b.from.wr
	imm := wr.Op == rdmap.WRImm || wr.Op == rdmap.WRImmSE
	inv := wr.Op == rdmap.WRSendInv || wr.Op == rdmap.WRSendSEInv
	se := wr.Op == rdmap.WRImmSE || wr.Op == rdmap.WRSendSEInv
	if imm != (c.Flags&rdmap.WithImm != 0) ||
		imm && (c.Imm != wr.Imm || c.ByteLen != rdmap.ImmLen) ||
		inv != (c.Flags&rdmap.WithInvalidate != 0) || se != (c.Flags&rdmap.Solicited != 0) {
		e.fail("receive of %v has flags %b and %x", wr.Op, c.Flags, c.Imm)
	}
	if inv && (c.Invalidated != b.from.invalidates.STag() || b.from.invalidates.Valid()) {
		e.fail("receive of %v: %v invalidated, want %v; valid: %v", wr.Op, c.Invalidated,
			b.from.invalidates.STag(), b.from.invalidates.Valid())
	}
}

// share holds the objects that the connections of a host share, as those of a worker do: the region table, a domain,
// the hold pool, and perhaps a receive queue.
type share struct {
	s     *scenario
	table *ddp.Table
	pool  *mpa.Pool
	pd    *ddp.PD
	srq   *rdmap.SRQ
	slot  int // bytes of a buffer of srq
	mem   []byte
	mr    *ddp.MR
	ends  []*rdmaEnd
}

// newShare creates a share. Its receive queue has buffers of slot bytes each. With 0 buffers, every queue pair has its
// own receive queue.
func newShare(s *scenario, h *Host, pool *mpa.Pool, buffers, slot int) *share {
	stags := rand.New(rand.NewPCG(s.seed, uint64(h.index)<<32+h.incarnations))
	x := &share{s: s, table: ddp.NewTable(seededRandom{stags}), pool: pool, slot: slot}
	var err error
	if x.pd, err = x.table.AllocPD(); err != nil {
		panic(err)
	}
	if buffers == 0 {
		return x
	}
	x.mem = make([]byte, buffers*slot)
	if x.mr, err = x.table.Register(x.pd, x.mem, ddp.Attr{Access: ddp.LocalWrite}); err != nil {
		panic(err)
	}
	x.srq, err = rdmap.NewSRQ(rdmap.SRQConfig{Table: x.table, PD: x.pd, Depth: buffers, MaxSGE: 2})
	if err != nil {
		panic(err)
	}
	for i := range buffers {
		x.post(uint64(i))
	}
	return x
}

// post gives buffer i to the shared queue.
func (x *share) post(i uint64) {
	half := x.slot / 2
	wr := rdmap.RecvWR{ID: i, SGL: []rdmap.SGE{
		{STag: x.mr.STag(), TO: ddp.TO(int(i) * x.slot), Len: uint32(half)},
		{STag: x.mr.STag(), TO: ddp.TO(int(i)*x.slot + half), Len: uint32(x.slot - half)}}}
	if err := x.srq.PostRecv(&wr); err != nil {
		x.s.world.Fail(fmt.Errorf("shared receive queue: %w", err))
	}
}

// end creates one end of a connection.
func (x *share) end(c *rdmaConn, name string, h *Host) *rdmaEnd {
	e := &rdmaEnd{name: fmt.Sprintf("%s%d", name, len(x.ends)), c: c, host: h, life: h.incarnations,
		table: x.table, pool: x.pool, share: x, number: len(x.ends), dials: name == "a"}
	x.ends = append(x.ends, e)
	return e
}

// queues sets the shared objects of e's queue pair.
func (x *share) queues(e *rdmaEnd, cfg *rdmap.Config) {
	cfg.Stream, cfg.SRQ = e.stream(), x.srq
}

// tidy destroys everything after the end. No queue pair may still refer to a region or to the shared receive queue.
func (x *share) tidy() error {
	for _, e := range x.ends {
		if e.closed == 0 {
			e.qp.Abort() // it never had a connection, or the host rebooted
		}
		if s, r := e.qp.Outstanding(); s+r > 0 {
			return fmt.Errorf("%s: %d and %d requests outstanding after the end", e.name, s, r)
		}
		e.qp.Destroy()
		if e.window != nil {
			if m := x.table.Lookup(e.window.STag() | 0x5a); m != nil && m.Valid() {
				return fmt.Errorf("%s: a window is bound after the end of its stream", e.name)
			}
			if err := x.table.FreeWindow(e.window); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
		for _, m := range append(e.extra, e.mr) {
			if n := m.Holds(); n > 0 {
				return fmt.Errorf("%s: %d requests use a region of %d bytes after the end", e.name,
					n, m.Len())
			}
			if err := x.table.Deregister(m); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
	}
	if x.srq != nil {
		if err := errors.Join(x.srq.Destroy(), x.table.Deregister(x.mr)); err != nil {
			return fmt.Errorf("shared receive queue: %w", err)
		}
	}
	if err := x.table.FreePD(x.pd); err != nil || x.table.Len() > 0 {
		return fmt.Errorf("%d regions are left in the table, %v", x.table.Len(), err)
	}
	return nil
}

// fromShared handles the completion of a receive of the shared queue. Any message may have got any of its buffers.
func (e *rdmaEnd) fromShared(c *rdmap.Completion) {
	x := e.share
	if c.Flags&rdmap.FromSharedQueue == 0 && c.Status == rdmap.Success {
		e.fail("a receive of the shared queue does not say so")
	}
	if c.Status == rdmap.Success {
		if e.recvDone >= len(e.recvs) {
			e.fail("one receive too many")
			return
		}
		b := &e.recvs[e.recvDone]
		e.recvDone++
		b.done = true
		e.special(c, b)
		got := x.mem[int(c.ID)*x.slot:][:c.ByteLen]
		if c.Flags&rdmap.WithImm == 0 && !bytes.Equal(got, b.want) {
			e.fail("receive %d of the shared queue has %d bytes, want %d, or others", c.ID,
				len(got), len(b.want))
		}
	}
	x.post(c.ID)
}
