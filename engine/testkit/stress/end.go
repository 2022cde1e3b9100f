package stress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// The memory of an end has source slots of Writes, sink slots of Reads, and pieces for receives. The memory of its
// target has slots that the peer writes, and a counter that the peer adds to.
const (
	slots      = 4
	slotSize   = 100_004 // maximum number of bytes; not a multiple of the page size
	area       = slots * slotSize
	recvs      = 8
	recvSize   = 5_000
	recvAt     = 2 * area
	resultAt   = recvAt + recvs*recvSize // place for the result of an atomic
	endSize    = resultAt + 8
	counterAt  = area
	targetSize = area + 8
	underWay   = 24 // concurrent send work requests
)

// poison occurs in no message. An end fills memory with it once it owns the memory again.
const poison = 0xEE

// text fills b with message n of the end with a key.
func text(b []byte, key, n uint64) {
	x := key*0x9E3779B97F4A7C15 + n*0xBF58476D1CE4E5B9 + 1
	for i := range b {
		x = x*0x5851F42D4C957F2D + 1
		b[i] = byte(x>>56) % poison
	}
}

// sendLen is the length of Send n of the end with a key.
func sendLen(key, n uint64) int { return 1 + int((key*31+n*7919)%recvSize) }

// op is an outstanding send work request.
type op struct {
	verbs.WROp
	id   uint64
	slot int // its slot; -1 for none
	n    int // length in bytes
	text uint64
}

// end is one end of a connection. On one goroutine it posts random work requests and receives messages of the peer. It
// checks every resulting byte and completion.
type end struct {
	*verbstest.End
	key    uint64
	rnd    *rand.Rand
	peer   *end
	target []byte
	door   verbs.MR // region of the target
	shut   bool     // door is closed
	calm   bool     // nothing may fail

	ops            int          // operations still to post
	sends          int          // Sends among the operations still to post
	total          int          // number of Sends of the whole run
	asked          atomic.Int64 // posted receives that no Send of the peer uses yet
	sent           int
	came           int // Sends received
	free           []int
	out            []op   // outstanding send work requests, in order
	receivesPosted uint64 // receives posted
	id             uint64
	added          uint64 // number of additions to the peer's counter
	act            func() error
	actAtLeft      int   // act runs when this many operations are left
	actErr         error // error of act
}

func newEnd(dev verbs.Device, key uint64, rnd *rand.Rand, ops int) (*end, error) {
	v, err := verbstest.Make(dev, endSize)
	if err != nil {
		return nil, err
	}
	e := &end{End: v, key: key, rnd: rnd, ops: ops, sends: ops / 3, total: ops / 3, actAtLeft: -1}
	if e.target, err = dev.Alloc(targetSize); err != nil {
		return nil, err
	}
	if e.door, err = e.PD.RegMR(e.target, verbs.LocalWrite|verbs.RemoteRights); err != nil {
		return nil, err
	}
	for i := range slots {
		e.free = append(e.free, i)
	}
	return e, e.receives(recvs/2, 0)
}

// receives posts n receives, with a pause before each.
func (e *end) receives(n int, pause time.Duration) (err error) {
	for range n {
		time.Sleep(pause)
		err = errors.Join(err, e.receive())
	}
	return err
}

// recvBit distinguishes receives from send work requests.
const recvBit = 1 << 63

func (e *end) receive() error {
	err := e.QP.PostRecv(&verbs.RecvWR{ID: e.receivesPosted | recvBit,
		SGL: []verbs.SGE{e.MR.SGE(recvPiece(e.receivesPosted), recvSize)}})
	if err == nil {
		e.receivesPosted++
		e.asked.Add(1)
	}
	return err
}

func recvPiece(n uint64) int { return recvAt + int(n%recvs)*recvSize }

// runOperations posts and polls until all is done or the connection fails, which is an error only if e is calm.
func (e *end) runOperations(ctx context.Context) error {
	var got [8]verbs.Completion
	for e.ops > 0 || len(e.out) > 0 || e.came < e.peer.total {
		if err := e.post(); err != nil {
			return e.unlessCalm("post", err)
		}
		n, err := e.wait(ctx, got[:])
		if err != nil {
			return e.unlessCalm("wait", err)
		}
		for i := range got[:n] {
			if err := e.checkCompletion(&got[i]); err != nil {
				return err
			}
			if err := got[i].Err(); err != nil {
				return e.takeRest(got[i+1:n], e.unlessCalm("completion", err))
			}
		}
	}
	return nil
}

func (e *end) takeRest(list []verbs.Completion, err error) error {
	for i := range list {
		err = errors.Join(err, e.checkCompletion(&list[i]))
	}
	return err
}

func (e *end) unlessCalm(what string, err error) error {
	if !e.calm {
		return nil
	}
	i, infoErr := e.QP.Info()
	return fmt.Errorf(
		"%s: %w; %d to post, %d outstanding, %d of %d Sends received; queue pair: %v, %+v, %v",
		what, err, e.ops, len(e.out), e.came, e.peer.total, e.QP.Err(), i, infoErr)
}

// wait is CQ.Wait, but waits only briefly while e can post again as soon as the peer has a receive.
func (e *end) wait(ctx context.Context, got []verbs.Completion) (int, error) {
	if e.ops == 0 || len(e.out) > 0 {
		return e.CQ.Wait(ctx, got)
	}
	moment, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	n, err := e.CQ.Wait(moment, got)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return n, err
}

// post posts as many operations as may be outstanding.
func (e *end) post() error {
	for e.ops > 0 && len(e.out) < underWay {
		if e.ops <= e.actAtLeft && e.act != nil {
			f := e.act
			e.act = nil
			if err := f(); err != nil {
				return err
			}
		}
		posted, err := e.postOne()
		if err != nil || !posted {
			return err
		}
	}
	return nil
}

// postOne posts one operation. posted is false if it must wait for a completion or a receive of the peer.
func (e *end) postOne() (posted bool, err error) {
	k := e.rnd.IntN(4)
	switch sending := e.sends > 0 && (k == 0 || e.sends == e.ops); {
	case sending && e.peer.asked.Load() == 0, len(e.free) == 0:
		return false, nil
	case sending:
		err = e.postSend()
	case k == 1:
		err = e.add()
	default:
		err = e.writeAndRead()
	}
	return true, err
}

// postNumbered posts wr with a slot, for n bytes of text number.
func (e *end) postNumbered(wr verbs.SendWR, slot, n int, number uint64) error {
	wr.ID, wr.Flags = e.id, verbs.Signaled
	if err := e.QP.PostSend(&wr); err != nil {
		return err
	}
	e.out = append(e.out, op{wr.Op, e.id, slot, n, number})
	e.id++
	return nil
}

func (e *end) takeSlot() int {
	i := e.rnd.IntN(len(e.free))
	slot := e.free[i]
	e.free = append(e.free[:i], e.free[i+1:]...)
	return slot
}

// postSend sends the next message, inline when it is short.
func (e *end) postSend() error {
	n, number := sendLen(e.key, uint64(e.sent)), uint64(e.sent)
	wr := verbs.SendWR{Op: verbs.WRSend}
	slot := -1
	if n <= verbs.DefaultInline {
		wr.Inline = make([]byte, n)
		text(wr.Inline, e.key, number)
	} else {
		slot = e.takeSlot()
		at := slot * slotSize
		text(e.Mem[at:at+n], e.key, number)
		cutAt := e.rnd.IntN(n + 1) // two pieces
		wr.SGL = []verbs.SGE{e.MR.SGE(at, cutAt), e.MR.SGE(at+cutAt, n-cutAt)}
	}
	e.peer.asked.Add(-1)
	e.ops, e.sends, e.sent = e.ops-1, e.sends-1, e.sent+1
	return e.postNumbered(wr, slot, n, number)
}

// writeAndRead writes to a slot of the peer and reads it back.
func (e *end) writeAndRead() error {
	slot := e.takeSlot()
	n := 1 + e.rnd.IntN(min(slotSize, 1<<e.rnd.IntN(18)))
	at, number := slot*slotSize, e.id|recvBit
	text(e.Mem[at:at+n], e.key, number)
	there := e.peer.door.Remote()
	wr := verbs.SendWR{Op: verbs.WRWrite, SGL: []verbs.SGE{e.MR.SGE(at, n)},
		RemoteSTag: there.STag, RemoteTO: there.Base + verbs.TO(at)}
	e.ops--
	if err := e.postNumbered(wr, slot, n, number); err != nil {
		return err
	}
	wr.Op, wr.SGL = verbs.WRRead, []verbs.SGE{e.MR.SGE(area+at, n)}
	return e.postNumbered(wr, slot, n, number)
}

// add adds 1 to the peer's counter, as its only user. While an earlier addition is outstanding, it posts nothing.
func (e *end) add() error {
	there := e.peer.door.Remote()
	e.ops--
	for _, o := range e.out { // an outstanding one uses the place of the result
		if o.WROp == verbs.WRFetchAdd {
			return nil
		}
	}
	e.added++
	return e.postNumbered(verbs.SendWR{Op: verbs.WRFetchAdd,
		SGL:        []verbs.SGE{e.MR.SGE(resultAt, 8)},
		RemoteSTag: there.STag, RemoteTO: there.Base + counterAt, Data: 1}, -1, 8, e.added-1)
}

// checkCompletion compares one completion with the posted operation.
func (e *end) checkCompletion(c *verbs.Completion) error {
	if c.QP != e.QP {
		return fmt.Errorf("a completion of another queue pair: %+v", c)
	}
	if c.Op == verbs.WRRecv {
		return e.takeRecv(c)
	}
	if len(e.out) == 0 || e.out[0].id != c.ID {
		return fmt.Errorf("completion of %v %d, outstanding are %v", c.Op, c.ID, e.out)
	}
	o := e.out[0]
	e.out = e.out[1:]
	if c.Status == verbs.Success && (c.Op != o.WROp || int(c.ByteLen) != o.n) {
		return fmt.Errorf("completion of %v, %d bytes; posted was %+v", c.Op, c.ByteLen, o)
	}
	at := o.slot * slotSize
	switch o.WROp {
	case verbs.WRWrite:
		fill(e.Mem[at:at+o.n], poison)
		return nil // the Read still uses the slot
	case verbs.WRFetchAdd:
		was := binary.NativeEndian.Uint64(e.Mem[resultAt:])
		if c.Status == verbs.Success && was != o.text {
			return fmt.Errorf("the counter was %d, want %d", was, o.text)
		}
		return nil
	case verbs.WRRead:
		if got := e.Mem[area+at:]; c.Status == verbs.Success {
			if err := compare(got[:o.n], e.key, o.text); err != nil {
				return fmt.Errorf("read back: %w", err)
			}
		}
		fill(e.Mem[area+at:area+at+o.n], 0)
	case verbs.WRSend:
		if o.slot >= 0 {
			fill(e.Mem[at:at+o.n], poison)
		}
	}
	if o.slot >= 0 {
		e.free = append(e.free, o.slot)
	}
	return nil
}

func (e *end) takeRecv(c *verbs.Completion) error {
	number := uint64(e.came)
	if c.ID != number|recvBit || number >= e.receivesPosted {
		return fmt.Errorf("completion of receive %d, want %d of %d", c.ID&^recvBit, number,
			e.receivesPosted)
	}
	e.came++
	if c.Status != verbs.Success {
		return nil
	}
	at, n := recvPiece(number), sendLen(e.peer.key, number)
	if int(c.ByteLen) != n {
		return fmt.Errorf("message %d has %d bytes, want %d", number, c.ByteLen, n)
	}
	if err := compare(e.Mem[at:at+n], e.peer.key, number); err != nil {
		return fmt.Errorf("message %d: %w", number, err)
	}
	fill(e.Mem[at:at+n], poison)
	if err := e.receive(); err != nil {
		return e.unlessCalm("post receive", err)
	}
	return nil
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func compare(got []byte, key, n uint64) error {
	want := make([]byte, len(got))
	text(want, key, n)
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#02x, want %#02x", i, len(got), got[i], want[i])
		}
	}
	return nil
}
