package transfer

import (
	"context"
	"errors"
	"time"

	"xwarp/engine/host/fault"
	"xwarp/engine/verbs"
)

// registration is memory that the peer of one link can access by an STag.
type registration struct {
	mr      verbs.MR
	release func() error // frees the memory, once no STag names it

	// bounce, if set, is memory of the device that is registered instead of other memory. The peer's bytes are copied
	// to mem, a part of the other memory, when the STag is invalidated.
	bounce, mem []byte
}

// registerLocal registers n bytes for this end alone, for as long as the link lives.
func (l *link) registerLocal(n int) (verbs.MR, error) {
	mem, err := l.end.Dev.Alloc(n)
	if err != nil {
		return nil, err
	}
	return l.end.Register(mem, verbs.LocalWrite, func() error { return l.freeLocal(mem) })
}

// freeLocal frees memory, once no reader uses it any more: a reader left behind by ctx may write there after the link
// is gone.
func (l *link) freeLocal(mem []byte) error {
	if l.reading == nil {
		return l.end.Dev.Free(mem)
	}
	go func() {
		<-l.reading
		l.end.Dev.Free(mem) // the device may be closed, and its memory with it
	}()
	return nil
}

func (l *link) registerMemory(mem []byte, access verbs.Access, release func() error) (*registration,
	error) {
	mr, err := l.end.Register(mem, access, release)
	if err != nil {
		return nil, err
	}
	return &registration{mr: mr, release: release}, nil
}

// expose registers memory for the peer. release is called if the link ends while the memory is registered, but not
// after deregister. A daemon's device registers only its own memory: then a bounce buffer with the bytes of mem is used
// instead. After deregister mem has the peer's bytes, up to setLength.
func (l *link) expose(mem []byte, access verbs.Access, release func() error) (*registration,
	error) {
	o, err := l.registerMemory(mem, access, release)
	if !errors.Is(err, verbs.ErrNotShared) {
		return o, err
	}
	bounce, err := l.end.Dev.Alloc(len(mem))
	if err != nil {
		return nil, err
	}
	if err = fault.Touch(func() { copy(bounce, mem) }); err == nil { // mem may be a file's
		o, err = l.registerMemory(bounce, access, func() error {
			return errors.Join(l.end.Dev.Free(bounce), release())
		})
	}
	if err != nil {
		return nil, errors.Join(err, l.end.Dev.Free(bounce))
	}
	o.bounce, o.mem = bounce, mem[:0]
	return o, nil
}

// bounced reports whether the peer writes to a bounce buffer. It returns false for a nil registration.
func (o *registration) bounced() bool {
	return o != nil && o.bounce != nil && o.mr.Remote().Access&verbs.RemoteWrite != 0
}

// setLength records that the peer wrote the first n bytes.
func (o *registration) setLength(n uint64) {
	if o.bounced() {
		o.mem = o.mem[:n]
	}
}

// freeBounce copies the peer's bytes out of the bounce buffer and frees the buffer. If it fails, the memory is
// released.
func (o *registration) freeBounce(dev verbs.Device) error {
	if o.bounce == nil {
		return nil
	}
	if err := fault.Touch(func() { copy(o.mem, o.bounce) }); err != nil {
		return errors.Join(err, o.release())
	}
	return dev.Free(o.bounce)
}

// deregister invalidates the STag. It waits for the answers to earlier RDMA Reads: a client that sent Done has them,
// and its acknowledgement is on the way. If it fails, the memory stays registered until the link ends, which must be
// soon. It does nothing for a nil registration.
func (l *link) deregister(ctx context.Context, o *registration) error {
	wait, cancel := context.WithTimeoutCause(ctx, closeWait, errUnread)
	defer cancel()
	wait, stop := l.untilClosed(wait)
	defer stop()
	for {
		err := l.deregisterNow(o)
		if !errors.Is(err, verbs.ErrBusy) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-wait.Done():
			return context.Cause(wait)
		}
	}
}

// deregisterNow is deregister without waiting: it fails with verbs.ErrBusy instead.
func (l *link) deregisterNow(o *registration) error {
	if o == nil {
		return nil
	}
	err := l.end.Deregister(o.mr)
	if err == nil {
		err = o.freeBounce(l.end.Dev)
	}
	return err
}

var errUnread = refuse(CodeProtocol, "Done came while RDMA Reads were under way")
