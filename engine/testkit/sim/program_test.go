package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
)

// op is one verb of a program: the operation, and the content of both memories afterwards.
type op struct {
	wr     rdmap.SendWR
	effect area // what it writes: for a Read or atomic, the result at the end that posts it; otherwise at the peer
	second area // of an atomic: the word that it changes in the peer's memory
	// The region that the operation invalidates: the peer's, or a local one.
	invalidates *ddp.MR
	recv        int // of a Send: the receive of the peer that gets it, -1 for none
	posted      bool
	done        bool
	status      rdmap.Status
}

// area is the memory that one operation writes.
type area struct {
	end  *rdmaEnd
	off  int
	want []byte
}

func (a *area) is() []byte { return a.end.mem[a.off : a.off+len(a.want)] }

func (a *area) check(what string) error {
	if a.end == nil || a.end.vanished || bytes.Equal(a.is(), a.want) {
		return nil
	}
	i := 0
	for a.is()[i] == a.want[i] {
		i++
	}
	return fmt.Errorf("%s: memory of %s at %d+%d of %d bytes is wrong", what, a.end.name, a.off, i,
		len(a.want))
}

type recvBuf struct {
	area
	n    int
	done bool
	from *op // the operation whose message it should get
}

type seededRandom struct{ *rand.Rand }

func (r seededRandom) Uint32() uint32 { return r.Rand.Uint32() }

// layout allocates memory of one end. pending has functions that fill that memory and complete the operations, once it
// exists.
type layout struct {
	size    int
	pending []func(e *rdmaEnd, r *rand.Rand)
}

func (l *layout) take(r *rand.Rand, n int) int {
	at := (l.size + r.IntN(20) + 7) &^ 7
	l.size = at + n
	return at
}

func (c *rdmaConn) opSize(r *rand.Rand) int {
	if c.cfg.bulk {
		return r.IntN(c.cfg.maxOp)
	}
	switch r.IntN(5) {
	case 0:
		return r.IntN(3)
	case 1:
		return r.IntN(200)
	case 2:
		return 1300 + r.IntN(300)
	case 3:
		return r.IntN(min(10000, c.cfg.maxOp))
	}
	return r.IntN(c.cfg.maxOp)
}

// plan draws n operations of e. mine and theirs lay out the memories of e and its peer.
func (e *rdmaEnd) plan(r *rand.Rand, n int, mine, theirs *layout) {
	for i := range n {
		o := op{recv: -1}
		o.wr.ID = uint64(i)
		o.wr.Flags = rdmap.Signaled
		if r.IntN(4) == 0 {
			o.wr.Flags |= rdmap.Fence
		}
		size := e.c.opSize(r)
		i := i
		if e.c.cfg.windows && i > 0 && !e.binding && r.IntN(4) == 0 {
			e.binding = true
			o.wr.Op = rdmap.WRBindMW
			e.ops = append(e.ops, o)
			continue
		}
		k := r.IntN(10)
		if e.c.cfg.verbs && r.IntN(2) == 0 {
			e.planMore(&o, i, size, r, mine, theirs)
			e.ops = append(e.ops, o)
			continue
		}
		switch {
		case k < 4:
			o.wr.Op = rdmap.WRWrite
			src, dst := mine.take(r, size), theirs.take(r, size)
			mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
				o := &e.ops[i]
				randomize(r, e.mem[src:src+size])
				o.wr.SGL = e.sgl(r, src, size)
				o.wr.RemoteTO = ddp.TO(dst)
				o.effect = area{e.peer, dst, bytes.Clone(e.mem[src : src+size])}
			})
		case k < 6:
			o.wr.Op = rdmap.WRRead
			sink, src := mine.take(r, size), theirs.take(r, size)
			theirs.pending = append(theirs.pending, func(p *rdmaEnd, r *rand.Rand) {
				o := &p.peer.ops[i]
				randomize(r, p.mem[src:src+size])
				o.wr.RemoteTO = ddp.TO(src)
				o.effect = area{p.peer, sink, bytes.Clone(p.mem[src : src+size])}
			})
			mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
				e.ops[i].wr.SGL = []rdmap.SGE{{TO: ddp.TO(sink), Len: uint32(size)}}
			})
		case k < 9:
			o.wr.Op = []rdmap.WROp{rdmap.WRSend, rdmap.WRSendSE}[r.IntN(2)]
			src, dst := mine.take(r, size), theirs.take(r, size+r.IntN(50))
			room := theirs.size - dst
			mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
				o := &e.ops[i]
				randomize(r, e.mem[src:src+size])
				if size <= 64 && r.IntN(2) == 0 {
					o.wr.Inline = bytes.Clone(e.mem[src : src+size])
				} else {
					o.wr.SGL = e.sgl(r, src, size)
				}
				o.recv = len(e.peer.recvs)
				e.peer.recvs = append(e.peer.recvs,
					recvBuf{area: area{e.peer, dst, bytes.Clone(e.mem[src : src+size])}, n: room})
				o.effect = e.peer.recvs[o.recv].area
			})
		default:
			o.wr.Op = rdmap.WRFetchAdd
			sink, target := mine.take(r, 8), theirs.take(r, 8)
			add := r.Uint64()
			theirs.pending = append(theirs.pending, func(p *rdmaEnd, r *rand.Rand) {
				o := &p.peer.ops[i]
				randomize(r, p.mem[target:target+8])
				old := binary.NativeEndian.Uint64(p.mem[target:])
				o.wr.RemoteTO, o.wr.Data = ddp.TO(target), add
				o.effect = area{p.peer, sink, bytes.Clone(p.mem[target : target+8])}
				o.second = area{p, target, binary.NativeEndian.AppendUint64(nil, old+add)}
			})
			mine.pending = append(mine.pending, func(e *rdmaEnd, r *rand.Rand) {
				e.ops[i].wr.SGL = []rdmap.SGE{{TO: ddp.TO(sink), Len: 8}}
			})
		}
		e.ops = append(e.ops, o)
	}
}

func randomize(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// sgl splits a source into up to three pieces.
func (e *rdmaEnd) sgl(r *rand.Rand, off, n int) (l []rdmap.SGE) {
	for k := r.IntN(3); k > 0 && n > 0; k-- {
		c := r.IntN(n + 1)
		l = append(l, rdmap.SGE{TO: ddp.TO(off), Len: uint32(c)})
		off, n = off+c, n-c
	}
	return append(l, rdmap.SGE{TO: ddp.TO(off), Len: uint32(n)})
}

// fill creates the memory and the queue pair of e, and registers the memory.
func (e *rdmaEnd) fill(r *rand.Rand, l *layout) {
	var err error
	if e.share != nil {
		e.pd = e.share.pd
	} else if e.pd, err = e.table.AllocPD(); err != nil {
		panic(err)
	}
	e.mem = e.c.memory(max(l.size+64, 64))
	randomize(r, e.mem[len(e.mem)-64:])
	e.mr, err = e.table.Register(e.pd, e.mem,
		ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteRead | ddp.RemoteWrite | ddp.RemoteAtomic |
			ddp.BindMW})
	if err != nil {
		panic(err)
	}
	if e.c.cfg.windows {
		if e.window, err = e.table.AllocWindow(e.pd, 0, nil); err != nil {
			panic(err)
		}
	}
	cfg := rdmap.Config{
		Table: e.table, PD: e.pd, Stream: 1, SendDepth: e.c.cfg.depth, RecvDepth: recvDepth,
		MaxSGE: 4, MaxInline: 64,
		MaxIRD: 16, MaxORD: 16, Completer: e,
	}
	if e.share != nil {
		e.share.queues(e, &cfg)
	}
	if err = e.qp.Init(cfg); err != nil {
		panic(err)
	}
	for _, f := range l.pending {
		f(e, r)
	}
}

// ready completes what needs both ends: STags, receives, and the initial content of the memory.
func (e *rdmaEnd) ready(r *rand.Rand) {
	bad := -1
	if e.c.cfg.badOp && len(e.ops) > 0 && e.dials {
		bad = r.IntN(len(e.ops))
	}
	for i := range e.ops {
		o := &e.ops[i]
		if o.recv >= 0 && e.peer.share != nil && e.peer.share.srq != nil {
			o.effect = area{} // which buffer it gets is not determined
		}
		if o.invalidates != nil {
			o.wr.Invalidate = o.invalidates.STag()
		}
		if o.wr.Op == rdmap.WRBindMW {
			e.binds(&o.wr)
			continue
		}
		o.wr.RemoteSTag = e.peer.mr.STag()
		if i == bad {
			o.wr.RemoteSTag ^= 0x5a5a
		}
		for k := range o.wr.SGL {
			o.wr.SGL[k].STag = e.mr.STag()
		}
	}
	shared := e.share != nil && e.share.srq != nil
	for !shared && e.recvPosted < e.inTime() {
		if err := e.postRecv(); err != nil {
			e.fail("PostRecv: %v", err)
			break
		}
	}
	e.base = bytes.Clone(e.mem)
}

// memory compares the memory with the model: data of completed operations is there, that of others may be there in
// part, and nothing else changed.
func (e *rdmaEnd) memory() error {
	if e.base == nil { // it never started: its host rebooted first
		return nil
	}
	e.find()
	want := bytes.Clone(e.base)
	maybe := make(map[int]byte)
	apply := func(a *area, sure bool) {
		if a.end != e {
			return
		}
		for i, b := range a.want {
			if sure {
				want[a.off+i] = b
			} else {
				maybe[a.off+i] = b
			}
		}
	}
	for _, from := range []*rdmaEnd{e, e.peer} {
		for i := range from.ops {
			o := &from.ops[i]
			sure := o.done && o.status == rdmap.Success && (from == e && o.effect.end == e ||
				e.qp.Err() == nil && e.err == nil)
			if o.recv >= 0 && o.effect.end == e && e.recvs[o.recv].done {
				sure = true
			}
			apply(&o.effect, sure && !e.revocable(o))
			apply(&o.second, sure)
		}
	}
	for i, b := range e.mem {
		m, ok := maybe[i]
		if ok && b == 0 && e.c.cfg.early == endInvalidate {
			continue
		}
		if b != want[i] && !(ok && b == m) {
			return fmt.Errorf("memory at %d is %#x, want %#x (maybe %v %#x)", i, b, want[i], ok, m)
		}
	}
	return nil
}
