package transfer

import (
	"context"
	"errors"
	"time"

	"xwarp/engine/host/fault"
	"xwarp/engine/verbs"
)

// registration is memory that the peer of one link reaches by an STag.
type registration struct {
	mr      verbs.MR
	release func() error // of the memory, once no STag names it

	// bounce, when set, is memory of the device's that is registered instead of other memory. The peer's bytes are
	// copied to that when the STag is taken away. mem is the part of the other memory that gets them.
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

// freeLocal gives memory back, once nobody reads into it any more: a reader that ctx left behind may write there after
// the link is gone.
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

// expose registers memory for the peer. release is called when the link ends with the memory still registered; after
// deregister it is not. A daemon's device registers no memory but its own: a bounce buffer takes the place of mem then,
// with its bytes. After deregister mem holds the peer's bytes, up to setLength.
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

// bounced reports whether the peer writes to a bounce buffer. A nil registration has none.
func (o *registration) bounced() bool {
	return o != nil && o.bounce != nil && o.mr.Remote().Access&verbs.RemoteWrite != 0
}

// setLength says that the peer wrote the first n bytes.
func (o *registration) setLength(n uint64) {
	if o.bounced() {
		o.mem = o.mem[:n]
	}
}

// freeBounce copies the peer's bytes out of the bounce buffer and frees the buffer. When it fails the memory is
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

// deregister takes the STag away. It waits for the answers to RDMA Reads that came before: a client that said
// Done has them, and its acknowledgement is on the way. When it fails, the memory stays registered until the link
// ends, which must be soon. A nil registration is none.
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

// deregisterNow is deregister that does not wait: it fails with ErrBusy of package verbs then.
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
