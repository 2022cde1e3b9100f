package budget

import (
	"container/list"

	"xwarp/tcp/tick"
)

// idleAccounts lists the accounts that hold nothing, the latest first. Such an account stays for a while, because its
// rate must outlive a connection, and the operator sees what was refused.
type idleAccounts[A any] struct{ list list.List }

// idle is an account's place in such a list.
type idle struct {
	place *list.Element // nil: the account holds something
	since tick.Time     // when that ended
}

// update lists an account that holds nothing, and removes one that holds something.
func (l *idleAccounts[A]) update(a *A, at *idle, empty bool, now tick.Time) {
	switch {
	case empty && at.place == nil:
		*at = idle{l.list.PushFront(a), now}
	case !empty && at.place != nil:
		l.remove(at)
	}
}

// refresh makes an account that is listed the latest.
func (l *idleAccounts[A]) refresh(at *idle, now tick.Time) {
	l.list.MoveToFront(at.place)
	at.since = now
}

func (l *idleAccounts[A]) remove(at *idle) {
	l.list.Remove(at.place)
	at.place = nil
}

// oldest returns the account that has held nothing for the longest time, nil for none.
func (l *idleAccounts[A]) oldest() *A {
	if e := l.list.Back(); e != nil {
		return e.Value.(*A)
	}
	return nil
}

func (l *idleAccounts[A]) len() int { return l.list.Len() }
