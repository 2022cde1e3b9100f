package rdmap

import (
	"encoding/binary"
	"math/rand/v2"

	"xwarp/ddp"
)

// flow is one direction: the verbs that x posts against y, and the model of them.
type flow struct {
	rng    *rand.Rand
	x, y   *host
	pool   *ddp.MR // sources, never changed
	sinks  *ddp.MR // of Reads and atomics, each byte used once
	target *ddp.MR // at y, only this flow writes there

	modelTarget, modelSinks []byte
	sinkOff                 int
	touched                 [][2]int // target ranges that verbs since the last barrier use

	todo     int
	queue    []SendWR // generated, not posted
	nextID   uint64
	done     []Completion // that x must see, in order
	messages []message    // that y must see, in order
	gone     []gone       // invalidated in the end
}

// gone is an STag that its table must have forgotten.
type gone struct {
	table *ddp.Table
	stag  ddp.STag
}

// message is the expected completion of a receive.
type message struct {
	data  []byte
	flags CompletionFlags
	imm   [ImmLen]byte
	inv   ddp.STag
}

func (f *flow) length() int {
	switch f.rng.IntN(12) {
	case 0:
		return 0
	case 1:
		return f.rng.IntN(targetLen)
	}
	return f.rng.IntN(300)
}

// sources returns an SGL of n bytes and its contents.
func (f *flow) sources(n int) (l []SGE, data []byte) {
	pool := f.x.held(f.pool)
	for n > 0 && len(l) < MaxSGE-1 {
		k := min(n, 1+f.rng.IntN(n))
		off := f.rng.IntN(len(pool) - k)
		l, data, n = append(l, sge(f.pool, off, k)), append(data, pool[off:off+k]...), n-k
	}
	if n > 0 {
		l, data = append(l, sge(f.pool, 0, n)), append(data, pool[:n]...)
	}
	if len(data) == 0 && f.rng.IntN(2) == 0 {
		l = append(l, SGE{})
	}
	return l, data
}

// payload makes wr carry n bytes, by SGL or inline.
func (f *flow) payload(wr *SendWR, n int) []byte {
	l, data := f.sources(n)
	if n <= 64 && f.rng.IntN(2) == 0 {
		wr.Inline = data
	} else {
		wr.SGL = l
	}
	return data
}

// sink returns n fresh bytes for results; ok is false when there are none left.
func (f *flow) sink(n int) (SGE, []byte, bool) {
	if f.sinkOff+n > len(f.modelSinks) {
		return SGE{}, nil, false
	}
	e, m := sge(f.sinks, f.sinkOff, n), f.modelSinks[f.sinkOff:f.sinkOff+n]
	f.sinkOff += n
	return e, m, true
}

// cut returns the memory of e as one to four pieces, of which some may be empty.
func (f *flow) cut(e SGE) (l []SGE) {
	for range f.rng.IntN(4) {
		n := uint32(f.rng.IntN(int(e.Len) + 1))
		l = append(l, SGE{e.STag, e.TO, n})
		e.TO, e.Len = e.TO+ddp.TO(n), e.Len-n
	}
	return append(l, e)
}

// order makes wr a barrier when it changes bytes that earlier verbs may still use: RFC 5040,
// 5.5, leaves the order of overlapping operations open.
func (f *flow) order(wr *SendWR, from, n int, changes bool) {
	if changes {
		for _, r := range f.touched {
			if from < r[1] && r[0] < from+n {
				f.emit(SendWR{Op: WRRead, RemoteSTag: f.target.STag()})
				wr.Flags |= Fence
				f.touched = f.touched[:0]
				break
			}
		}
	}
	f.touched = append(f.touched, [2]int{from, from + n})
}

func (f *flow) emit(wr SendWR) {
	f.nextID++
	wr.ID = f.nextID
	if f.rng.IntN(3) > 0 {
		wr.Flags |= Signaled
	}
	if f.rng.IntN(20) == 0 {
		wr.Flags |= Fence
	}
	n := len(wr.Inline)
	for _, e := range wr.SGL {
		n += int(e.Len)
	}
	if wr.Op == WRImm || wr.Op == WRImmSE {
		n = ImmLen
	}
	if wr.Flags&Signaled != 0 {
		f.done = append(f.done, Completion{ID: wr.ID, Op: wr.Op, ByteLen: uint32(n)})
	}
	f.queue = append(f.queue, wr)
}

// generate makes the next verb and runs it in the model.
func (f *flow) generate() {
	f.todo--
	switch k := f.rng.IntN(20); {
	case k < 7:
		f.genWrite()
	case k < 10:
		f.genRead()
	case k < 12:
		f.genAtomic()
	case k < 13:
		f.genInvalidate()
	default:
		f.genSend()
	}
}

func (f *flow) genWrite() {
	wr := SendWR{Op: WRWrite, RemoteSTag: f.target.STag()}
	data := f.payload(&wr, f.length())
	off := f.rng.IntN(targetLen - len(data) + 1)
	wr.RemoteTO = f.target.Base() + ddp.TO(off)
	f.order(&wr, off, len(data), true)
	copy(f.modelTarget[off:], data)
	f.emit(wr)
}

func (f *flow) genRead() {
	n := f.length()
	off := f.rng.IntN(targetLen - n + 1)
	e, model, ok := f.sink(n)
	if !ok {
		return
	}
	wr := SendWR{Op: WRRead, SGL: f.cut(e), RemoteSTag: f.target.STag(),
		RemoteTO: f.target.Base() + ddp.TO(off)}
	f.order(&wr, off, n, false)
	copy(model, f.modelTarget[off:off+n])
	f.emit(wr)
}

func (f *flow) genAtomic() {
	off := f.rng.IntN(targetLen/8) * 8
	e, model, ok := f.sink(8)
	if !ok {
		return
	}
	word := f.modelTarget[off : off+8]
	old := binary.NativeEndian.Uint64(word)
	wr := SendWR{Op: WRFetchAdd, SGL: []SGE{e}, RemoteSTag: f.target.STag(),
		RemoteTO: f.target.Base() + ddp.TO(off), Data: f.rng.Uint64()}
	var want uint64
	if f.rng.IntN(2) == 0 {
		if f.rng.IntN(2) == 0 {
			wr.Mask = f.rng.Uint64()
		}
		want = bitwiseFetchAdd(old, wr.Data, wr.Mask)
	} else {
		wr.Op, wr.Mask, wr.CompareMask = WRCmpSwap, f.rng.Uint64(), f.rng.Uint64()
		wr.Compare = old
		if f.rng.IntN(3) == 0 {
			wr.Compare = f.rng.Uint64()
		}
		want = old
		if (wr.Compare^old)&wr.CompareMask == 0 {
			want = old&^wr.Mask | wr.Data&wr.Mask
		}
	}
	f.order(&wr, off, 8, false) // executed in its place, after earlier Writes and Reads
	binary.NativeEndian.PutUint64(word, want)
	binary.NativeEndian.PutUint64(model, old)
	f.emit(wr)
}

// genInvalidate makes a local invalidation, or writes to a region of its own at y and
// invalidates it by a Send.
func (f *flow) genInvalidate() {
	if f.rng.IntN(3) == 0 {
		m := f.x.region(16, ddp.Attr{Access: ddp.RemoteRead, Stream: f.x.qp.cfg.Stream})
		f.gone = append(f.gone, gone{f.x.table, m.STag()})
		f.emit(SendWR{Op: WRLocalInv, Invalidate: m.STag()})
		return
	}
	m := f.y.region(64, ddp.Attr{Access: ddp.RemoteWrite, Stream: f.y.qp.cfg.Stream})
	f.gone = append(f.gone, gone{f.y.table, m.STag()})
	w := SendWR{Op: WRWrite, RemoteSTag: m.STag()}
	f.payload(&w, f.rng.IntN(65))
	f.emit(w)
	wr := SendWR{Op: WRSendInv, Invalidate: m.STag()}
	msg := message{flags: WithInvalidate, inv: m.STag()}
	if f.rng.IntN(2) == 0 {
		wr.Op, msg.flags = WRSendSEInv, WithInvalidate|Solicited
	}
	msg.data = f.payload(&wr, f.rng.IntN(100))
	f.messages = append(f.messages, msg)
	f.emit(wr)
}

func (f *flow) genSend() {
	ops := []WROp{WRSend, WRSend, WRSendSE, WRImm, WRImmSE}
	private := f.x.qp.params.Private
	if private {
		ops = append(ops, WRSendImm, WRSendImmSE)
	}
	wr := SendWR{Op: ops[f.rng.IntN(len(ops))]}
	var msg message
	if wr.Op == WRImm || wr.Op == WRImmSE {
		binary.BigEndian.PutUint64(wr.Imm[:], f.rng.Uint64())
		msg.flags, msg.imm = WithImm, wr.Imm
		if private {
			clear(msg.imm[4:]) // it is a length
		}
	} else {
		msg.data = f.payload(&wr, f.length())
	}
	if wr.Op == WRSendImm || wr.Op == WRSendImmSE {
		binary.BigEndian.PutUint32(wr.Imm[:], f.rng.Uint32())
		msg.flags, msg.imm = WithImm|OfSend, wr.Imm
	}
	if wr.Op == WRSendSE || wr.Op == WRImmSE || wr.Op == WRSendImmSE {
		msg.flags |= Solicited
	}
	f.messages = append(f.messages, msg)
	f.emit(wr)
}

// post posts as many of the generated work requests as fit.
func (f *flow) post() bool {
	if len(f.queue) == 0 {
		if f.todo <= 0 {
			return false
		}
		f.generate()
	}
	ok := false
	for len(f.queue) > 0 {
		if err := f.x.qp.PostSend(&f.queue[0]); err == ErrFull {
			break
		} else if err != nil {
			f.x.t.Fatalf("PostSend: %v", err)
		}
		f.queue, ok = f.queue[1:], true
	}
	return ok
}
