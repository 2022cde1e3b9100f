package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// move is the state of one RemoteFile.Move, or of one stream. The bytes move in steps of at most stepLen bytes, each
// with its own place in the buffers of both ends. Steps are requested, answered and finished in the same order.
type move struct {
	f      *RemoteFile
	in     io.Reader // source of a stream, whose end sets n; nil: the local file
	out    io.Writer // destination of a stream; nil: the local file
	buffer Message   // the server's buffer
	off, n int64

	asked, answered, ended int           // numbers of steps
	checks                 [steps]uint64 // XXH64 of each step's bytes, as the server read them
	reading                [steps]bool   // whether an RDMA Read of the step was posted
}

// Move moves n bytes of the file from offset off on, in the direction for which it was opened. n is not limited. The
// receiver compares the XXH64 of the bytes with that of the sender.
func (f *RemoteFile) Move(ctx context.Context, off, n int64) error {
	return (&move{f: f, off: off, n: n}).run(ctx)
}

func (m *move) run(ctx context.Context) (err error) {
	c := m.f.c
	if m.buffer, err = c.askBuffer(ctx); err != nil {
		return err
	}
	moving, stop := c.untilClosed(ctx)
	defer stop()
	if m.f.write {
		err = m.store(moving)
	} else {
		err = m.fetch(moving)
	}
	if err == nil {
		return nil
	}
	err = c.reason(ctx, err)
	if m.ended < m.asked { // pending answers would be taken for those of later requests
		c.shut()
	}
	return err
}

// step returns the offset of step i in the file, and its memory.
func (m *move) step(i int) (off int64, b []byte) {
	at := int64(i) * stepLen
	return m.off + at, m.f.c.memory.Bytes()[m.place(i):][:min(stepLen, m.n-at)]
}

// place returns the offset of step i in the buffers.
func (m *move) place(i int) int { return i % steps * stepLen }

// stepCount returns the number of steps.
func (m *move) stepCount() int { return int((m.n + stepLen - 1) / stepLen) }

// full reports whether all places are in use.
func (m *move) full() bool { return m.asked-m.ended == steps }

// postStep posts the RDMA Write or Read of step i.
func (m *move) postStep(op verbs.WROp, i int, flags verbs.WRFlags) error {
	_, b := m.step(i)
	return m.f.c.post(&verbs.SendWR{
		ID: uint64(i), Op: op, Flags: flags,
		SGL:        []verbs.SGE{m.f.c.memory.SGE(m.place(i), len(b))},
		RemoteSTag: m.buffer.STag, RemoteTO: ddp.TO(m.place(i)),
	})
}

// ask requests the next step.
func (m *move) ask(t Type, check uint64) error {
	off, b := m.step(m.asked)
	err := m.f.c.postMessage(&Message{Type: t, Offset: uint64(off), Length: uint64(len(b)),
		Place: uint64(m.place(m.asked)), Check: check})
	if err == nil {
		m.asked++
	}
	return err
}

// answer waits for the server's answer to the next step.
func (m *move) answer(ctx context.Context) error {
	reply, err := m.f.c.expect(ctx, TypeBytes)
	off, b := m.step(m.answered)
	if err == nil && (reply.Offset != uint64(off) || reply.Length != uint64(len(b))) {
		err = fmt.Errorf("%w: Bytes of another step", ErrProtocol)
	}
	m.checks[m.answered%steps] = reply.Check
	m.answered++
	return err
}

// store writes the local file's bytes to the server. After an error of the file it waits for the pending answers.
func (m *move) store(ctx context.Context) (err error) {
	for m.ended < m.asked || m.more(err) {
		if m.more(err) && !m.full() {
			err = m.storeStep()
			continue
		}
		e := m.answer(ctx)
		err = cmp.Or(err, e)
		if e != nil && !ofFile(e) {
			return err
		}
		m.ended++
	}
	return err
}

// more reports whether to request another step.
func (m *move) more(err error) bool { return err == nil && m.asked < m.stepCount() }

// storeStep starts the next step. The answer confirms that the server has the bytes: the Write needs no completion.
func (m *move) storeStep() error {
	off, b := m.step(m.asked)
	if m.in != nil {
		n, err := m.readStream(b)
		if b = b[:n]; n == 0 {
			return err
		}
	} else if err := readWhole(m.f.local, b, uint64(off), m.f.local.Name()); err != nil {
		return err
	}
	if err := m.postStep(rdmap.WRWrite, m.asked, 0); err != nil {
		return err
	}
	return m.ask(TypeStoreBytes, xxhash.Sum64(b))
}

// fetch reads bytes of the server into the local file. While a step's Read is in flight, the server answers the next
// ones. After an error of the file it waits for the pending answers.
func (m *move) fetch(ctx context.Context) (err error) {
	for m.ended < m.asked || m.more(err) {
		var e error
		switch {
		case m.more(err) && !m.full():
			e = m.ask(TypeFetchBytes, 0)
		case m.answered < m.asked && m.answered-m.ended < 2:
			if e = m.readStep(ctx, err == nil); ofFile(e) {
				err, e = cmp.Or(err, e), nil
			}
		case m.reading[m.ended%steps]:
			if e = m.waitRead(ctx); e == nil && err == nil {
				err = m.takeStep()
			}
			m.ended++
		default:
			m.ended++
		}
		if e != nil {
			return e
		}
	}
	return err
}

// readStep waits for an answer, and starts to read the bytes if they are needed.
func (m *move) readStep(ctx context.Context, wanted bool) error {
	i := m.answered
	err := m.answer(ctx)
	if m.reading[i%steps] = err == nil && wanted; m.reading[i%steps] {
		err = m.postStep(rdmap.WRRead, i, rdmap.Signaled)
	}
	return err
}

// waitRead waits for the bytes of the oldest step.
func (m *move) waitRead(ctx context.Context) error {
	var c [1]verbs.Completion
	if _, err := m.f.c.end.SendCQ.Wait(ctx, c[:]); err != nil {
		return err
	}
	if off, _ := m.step(m.ended); c[0].Status != rdmap.Success || c[0].ID != uint64(m.ended) {
		return fmt.Errorf("%v %d at byte %d: %v: %w", c[0].Op, c[0].ID, off, c[0].Status, errCut)
	}
	return nil
}

// takeStep writes the bytes of the oldest step to the local file.
func (m *move) takeStep() error {
	off, b := m.step(m.ended)
	if check, theirs := xxhash.Sum64(b), m.checks[m.ended%steps]; check != theirs {
		return fmt.Errorf("XXH64 of bytes %d to %d of %s is %x here and %x at the server", off,
			off+int64(len(b)), m.f.path, check, theirs)
	}
	if m.out != nil {
		if _, err := m.out.Write(b); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return nil
	}
	return writeAt(m.f.local, b, off, m.f.reply.Attr.Flags&FlagSparse != 0)
}

// ofFile reports whether err is an Error of the server about the file: then the connection continues.
func ofFile(err error) bool {
	var theirs *RemoteError
	return errors.As(err, &theirs) && (theirs.Code == CodeFile || theirs.Code == CodeTooLarge)
}
