package transfer

import (
	"context"
	"errors"
	"slices"
	"time"

	"xwarp/engine/host/fault"
	"xwarp/engine/verbs"
)

// loan is memory that the peer of one link reaches, or its own end.
type loan struct {
	mr   verbs.MR
	over func() error // what is due once no STag leads to it

	// shared, when set, is memory of the device's that is registered in the place of other memory; mem is what of
	// that the octets are copied to when the STag is taken away.
	shared, mem []byte
}

// own registers n octets for this end alone, for as long as the link lives.
func (l *link) own(n int) (*loan, error) {
	mem, err := l.dev.Alloc(n)
	if err != nil {
		return nil, err
	}
	return l.register(mem, verbs.LocalWrite, func() error { return l.dev.Free(mem) })
}

func (l *link) register(mem []byte, access verbs.Access, over func() error) (*loan, error) {
	mr, err := l.pd.RegMR(mem, access)
	if err != nil {
		return nil, err
	}
	o := &loan{mr: mr, over: over}
	l.loans = append(l.loans, o)
	return o, nil
}

// lend registers memory for the peer. over is called when the link ends with the loan still out; after recall
// it is not. A daemon reaches memory of its own kind only: the peer gets such memory then, with the octets
// of mem in it; what it writes is in mem after recall or revoke, as far as keep says.
func (l *link) lend(mem []byte, access verbs.Access, over func() error) (*loan, error) {
	o, err := l.register(mem, access, over)
	if !errors.Is(err, verbs.ErrNotShared) {
		return o, err
	}
	shared, err := l.dev.Alloc(len(mem))
	if err != nil {
		return nil, err
	}
	if err = fault.Touch(func() { copy(shared, mem) }); err == nil { // mem may be a file's
		o, err = l.register(shared, access, func() error {
			return errors.Join(l.dev.Free(shared), over())
		})
	}
	if err != nil {
		return nil, errors.Join(err, l.dev.Free(shared))
	}
	o.shared, o.mem = shared, mem[:0]
	return o, nil
}

// written reports whether what the peer writes is elsewhere than where it belongs. A nil loan is none.
func (o *loan) written() bool {
	return o != nil && o.shared != nil && o.mr.Remote().Access&verbs.RemoteWrite != 0
}

// keep says that the first n octets are the peer's.
func (o *loan) keep(n uint64) {
	if o.written() {
		o.mem = o.mem[:n]
	}
}

// sync brings n octets at off to where they belong; the peer may go on to write.
func (o *loan) sync(off, n uint64) error {
	if !o.written() {
		return nil
	}
	return fault.Touch(func() { copy(o.mem[:off+n][off:], o.shared[off:]) })
}

// back brings what the peer wrote to where it belongs. When that fails the loan is over.
func (o *loan) back(dev verbs.Device) error {
	if o.shared == nil {
		return nil
	}
	if err := fault.Touch(func() { copy(o.mem, o.shared) }); err != nil {
		return errors.Join(err, o.over())
	}
	return dev.Free(o.shared)
}

// recall takes the STag away. It waits for the answers to RDMA Reads that came before: a client that said
// Done has them, and its acknowledgement is on the way. When it fails, the memory stays out until the link
// ends, which must be soon. A nil loan is none.
func (l *link) recall(ctx context.Context, o *loan) error {
	wait, cancel := context.WithTimeoutCause(ctx, closeWait, errUnread)
	defer cancel()
	wait, stop := l.bound(wait)
	defer stop()
	for {
		err := l.revoke(o)
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

// revoke is recall that does not wait.
func (l *link) revoke(o *loan) error {
	if o == nil {
		return nil
	}
	err := closed(o.mr.Close())
	if err == nil {
		err = o.back(l.dev)
		l.loans = slices.DeleteFunc(l.loans, func(other *loan) bool { return other == o })
	}
	return err
}

var errUnread = refuse(CodeProtocol, "Done came while RDMA Reads were under way")

// closed is err, but nil where the whole device is closed: with it everything else is.
func closed(err error) error {
	if errors.Is(err, verbs.ErrClosed) {
		return nil
	}
	return err
}

// free gives everything back, after shut if there was a connection. The queue pair goes first: what it has
// under way holds memory.
func (l *link) free() error {
	var errs []error
	if l.qp != nil {
		errs = append(errs, closed(l.qp.Close()))
	}
	for _, o := range l.loans {
		if err := closed(o.mr.Close()); err != nil {
			errs = append(errs, err) // and the memory stays: a peer might still reach it
			continue
		}
		errs = append(errs, o.over())
	}
	l.loans = nil
	if l.pd != nil {
		errs = append(errs, closed(l.pd.Close()))
		l.pd = nil
	}
	return errors.Join(errs...)
}
