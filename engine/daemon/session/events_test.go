package session

import (
	"context"
	"testing"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
)

// readAll returns all events after a number that an account may see, and how many were lost.
func readAll(v *Events, a *budget.Account, after uint64) (list []control.EventRecord, lost uint64) {
	for {
		r := v.after(a, after)
		lost += r.Lost
		if len(r.Events) == 0 {
			return list, lost
		}
		list, after = append(list, r.Events...), r.Next
	}
}

// TestEventsOfUsers: a user sees its own events, numbered without gaps, and no errors of the daemon. The operator sees
// all events.
func TestEventsOfUsers(t *testing.T) {
	v := NewEvents()
	users := [2]*budget.Account{{}, {}}
	operator := &budget.Account{Holder: budget.Holder{Operator: true}}
	for i := range 100 {
		v.Record(users[i%2], control.EventRecord{Change: control.ChangeNew, Pid: int32(i)})
		v.Record(users[0], control.EventRecord{Change: control.ChangeEvent, Level: "ERROR"})
		v.Record(nil, control.EventRecord{Change: control.ChangeEvent, Level: "INFO"})
	}
	for i, a := range users {
		list, lost := readAll(v, a, 0)
		if len(list) != 50 || lost != 0 {
			t.Fatalf("user %d: %d events, %d lost", i, len(list), lost)
		}
		for n, e := range list {
			if e.Seq != uint64(n+1) || e.Pid != int32(2*n+i) {
				t.Fatalf("user %d: event %d is %+v", i, n, e)
			}
		}
	}
	if list, lost := readAll(v, operator, 0); len(list) != 300 || lost != 0 {
		t.Errorf("operator: %d events, %d lost", len(list), lost)
	}
	if n := len(v.Logs()); n != 200 {
		t.Errorf("%d lines of the log, want 200", n)
	}
}

// TestLostEventsAreCounted: a reader that is late gets the latest events and the number of the others.
func TestLostEventsAreCounted(t *testing.T) {
	v := NewEvents()
	user := &budget.Account{}
	operator := &budget.Account{Holder: budget.Holder{Operator: true}}
	for i := range 3 * eventsKept {
		a := user
		if i >= eventsKept && i%3 > 0 {
			a = nil
		}
		v.Record(a, control.EventRecord{Change: control.ChangeNew})
	}
	for a, seen := range map[*budget.Account]uint64{user: 100, operator: 100} {
		list, lost := readAll(v, a, seen)
		if n := uint64(len(list)) + lost + seen; n != v.last(a) || lost == 0 ||
			list[len(list)-1].Seq != v.last(a) {
			t.Errorf("operator %v: %d events and %d lost after %d, of %d", a.Operator, len(list),
				lost, seen, v.last(a))
		}
	}
	for range eventsKept {
		v.Record(nil, control.EventRecord{Change: control.ChangeNew})
	}
	if list, lost := readAll(v, user, 100); len(list) != 0 || lost != v.last(user)-100 {
		t.Errorf("%d events and %d lost of %d", len(list), lost, v.last(user))
	}
}

// TestWritersDoNotWait: Record does not block while a reader holds waitMu, nor while NotifyLoop does not run.
func TestWritersDoNotWait(t *testing.T) {
	v := NewEvents()
	v.waitMu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * eventsKept {
			v.Record(nil, control.EventRecord{Change: control.ChangeEvent})
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a writer waits")
	}
	v.waitMu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := v.next
	go v.NotifyLoop(ctx)
	<-next
}
