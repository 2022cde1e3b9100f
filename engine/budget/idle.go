package budget

import (
	"container/list"

	"xwarp/tcp/tick"
)

// idleAccounts lists the accounts that hold nothing, latest first. They are kept for a while, because their rate must
// outlive a connection and the operator wants to see refusals.
type idleAccounts[A any] struct{ list list.List }

// idle is the place of an account in the list.
type idle struct {
	place *list.Element // nil if the account holds something
	since tick.Time     // when it became idle, or was last refreshed
}

// update adds an account that holds nothing to the list, and removes one that holds something.
func (l *idleAccounts[A]) update(a *A, at *idle, empty bool, now tick.Time) {
	switch {
	case empty && at.place == nil:
		*at = idle{l.list.PushFront(a), now}
	case !empty && at.place != nil:
		l.remove(at)
	}
}

// refresh moves a listed account to the front.
func (l *idleAccounts[A]) refresh(at *idle, now tick.Time) {
	l.list.MoveToFront(at.place)
	at.since = now
}

func (l *idleAccounts[A]) remove(at *idle) {
	l.list.Remove(at.place)
	at.place = nil
}

// oldest returns the account that has been idle longest, or nil.
func (l *idleAccounts[A]) oldest() *A {
	if e := l.list.Back(); e != nil {
		return e.Value.(*A)
	}
	return nil
}

func (l *idleAccounts[A]) len() int { return l.list.Len() }
