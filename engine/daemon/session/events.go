package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/wake"
)

// Limits of the events that a daemon keeps. A flood of connections or objects overwrites the oldest events, and cannot
// make the lists grow.
const (
	eventsKept = 4096 // for xwarp monitor
	logsKept   = 512  // lines of the log, for the status page, apart from the others so that they outlive a flood
	eventsMost = 256  // in one reply
	// eventPause is the minimum time between two wake-ups of the programs that wait for events.
	eventPause = 10 * time.Millisecond
)

// Events keeps the latest events of a daemon. Workers record events: a writer never waits for a reader, because readers
// do not take the writers' lock, and a separate goroutine wakes them.
type Events struct {
	all, logs eventRing
	recorded  wake.Flag // a record that NotifyLoop has not announced

	mu sync.Mutex // of writers; held for a few stores

	waitMu sync.Mutex
	// guarded by waitMu
	next chan struct{} // closed after the next record
}

// event is a recorded event. It does not change.
type event struct {
	record  control.EventRecord
	number  uint64          // in its ring
	account *budget.Account // of the user who may see it; nil: only the operator
	own     uint64          // number among the events of account
}

// eventRing has the latest events. Writers hold Events.mu.
type eventRing struct {
	last  atomic.Uint64 // number of events so far
	slots []atomic.Pointer[event]
}

func (r *eventRing) add(e event) {
	e.number = r.last.Load() + 1
	r.slots[e.number%uint64(len(r.slots))].Store(&e)
	r.last.Store(e.number)
}

// oldest returns the number of the oldest event that may still be there.
func (r *eventRing) oldest() uint64 {
	last := r.last.Load()
	return last - min(last, uint64(len(r.slots))) + 1
}

// at returns an event, or nil if it was overwritten.
func (r *eventRing) at(number uint64) *event {
	if e := r.slots[number%uint64(len(r.slots))].Load(); e != nil && e.number == number {
		return e
	}
	return nil
}

// NewEvents returns an empty list.
func NewEvents() *Events {
	return &Events{recorded: wake.New(), next: make(chan struct{}),
		all:  eventRing{slots: make([]atomic.Pointer[event], eventsKept)},
		logs: eventRing{slots: make([]atomic.Pointer[event], logsKept)}}
}

// Record adds an event. Besides the operator, the user of account, if any, may see it unless its level is Error.
func (v *Events) Record(account *budget.Account, r control.EventRecord) {
	v.mu.Lock()
	r.Seq = v.all.last.Load() + 1
	e := event{record: r, account: account}
	if r.Level == slog.LevelError.String() {
		e.account = nil
	}
	if e.account != nil {
		e.own = e.account.Events.Add(1)
	}
	v.all.add(e)
	if r.Change == control.ChangeEvent {
		v.logs.add(e)
	}
	v.mu.Unlock()
	v.recorded.Set()
}

// NotifyLoop wakes waiting programs after records until ctx is done.
func (v *Events) NotifyLoop(ctx context.Context) {
	for {
		select {
		case <-v.recorded:
		case <-ctx.Done():
			return
		}
		v.waitMu.Lock()
		close(v.next)
		v.next = make(chan struct{})
		v.waitMu.Unlock()
		time.Sleep(eventPause)
	}
}

// Logs returns the latest lines of the log, oldest first.
func (v *Events) Logs() (list []control.EventRecord) {
	for n := v.logs.oldest(); n <= v.logs.last.Load(); n++ {
		if e := v.logs.at(n); e != nil {
			list = append(list, e.record)
		}
	}
	return list
}

// last returns the number of the latest event that an account may see.
func (v *Events) last(a *budget.Account) uint64 {
	if a.Operator {
		return v.all.last.Load()
	}
	return a.Events.Load()
}

// after returns those events after number that an account may see, oldest first, at most eventsMost. The operator's
// numbers count all events, a user's numbers only the user's own.
func (v *Events) after(a *budget.Account, number uint64) control.EventsResult {
	r := control.EventsResult{Events: []control.EventRecord{}, Next: number}
	first := v.all.oldest()
	if a.Operator {
		first = max(first, number+1)
	}
	for n := first; n <= v.all.last.Load() && len(r.Events) < eventsMost; n++ {
		e := v.all.at(n)
		if e == nil || !a.Operator && e.account != a {
			continue // overwritten meanwhile, or of another user
		}
		record := e.record
		if !a.Operator {
			record.Seq = e.own
		}
		if record.Seq > number {
			r.Lost += record.Seq - r.Next - 1
			r.Next = record.Seq
			r.Events = append(r.Events, record)
		}
	}
	if last := v.last(a); len(r.Events) == 0 && last > number { // all were overwritten
		r.Lost, r.Next = last-number, last
	}
	return r
}

// events answers OpEvents. Without a number it returns that of the latest event at once. With a number it waits until
// there are later events; only one such request of a program is answered at a time.
func (s *Session) events(ctx context.Context, a *control.EventsArgs) (any, error) {
	v := s.eventList
	if a.After == nil {
		return control.EventsResult{Events: []control.EventRecord{}, Next: v.last(s.account)}, nil
	}
	sent, err := waitTurn(ctx, s.eventsTurn)
	if err != nil {
		return nil, err
	}
	for {
		v.waitMu.Lock()
		next := v.next
		v.waitMu.Unlock()
		if v.last(s.account) > *a.After {
			defer s.enterTurn(false)()
			return &encoded{control.Marshal(v.after(s.account, *a.After)), sent}, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			sent()
			return nil, context.Cause(ctx)
		}
	}
}

// record records the creation or the end of o, an object of the session, or of the session itself if o is nil. It
// records nothing for an object without a kind, and nothing before the hello of the program.
func (s *Session) record(change string, o entry) {
	kind, object := "session", ""
	if o != nil {
		kind, object = o.numbers()
	}
	if kind == "" || s.dev == nil {
		return
	}
	r := control.EventRecord{Time: time.Now().Round(time.Microsecond), Change: change, Kind: kind,
		Device: s.dev.Name, Session: s.id, Program: s.program, UID: &s.cred.Uid, Pid: s.cred.Pid,
		Object: object}
	if q, ok := o.(*qp); ok {
		r.QP = q.handle
	}
	s.eventList.Record(s.account, r)
}

// Logger implements core.Logger: lines about the connection name the device, the program and the queue pair.
func (q *qp) Logger() *slog.Logger {
	return q.s.log.With("device", q.device, "program", q.s.program, "qp", q.handle)
}
