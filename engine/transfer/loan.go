package transfer

import (
	"context"
	"errors"
	"slices"
	"time"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// loan is memory that the peer of one link reaches.
type loan struct {
	mr   verbs.MR
	over func() error // what is due once no STag leads to it
}

// lend registers memory for the peer. over is called when the link ends with the loan still out; after recall
// it is not.
func (l *link) lend(mem []byte, access ddp.Access, over func() error) (*loan, error) {
	mr, err := l.pd.RegMR(mem, access)
	if err != nil {
		return nil, err
	}
	o := &loan{mr, over}
	l.loans = append(l.loans, o)
	return o, nil
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
		if !errors.Is(err, ddp.ErrBusy) {
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
	if l.slots != nil {
		errs = append(errs, closed(l.slots.Close()))
		l.slots = nil
	}
	if l.pd != nil {
		errs = append(errs, closed(l.pd.Close()))
		l.pd = nil
	}
	return errors.Join(errs...)
}
