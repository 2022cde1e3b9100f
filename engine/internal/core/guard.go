package core

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"xwarp/engine/stack"
	"xwarp/engine/verbs"
)

// A panic on a worker is a defect of this program. It ends the connection that was being served, as well as
// that can be done, and the worker goes on, if its tables came through it; else the device fails. What the Go
// runtime does not make a panic cannot be contained: concurrent use of a map, a stack that is exhausted,
// memory that the system does not give.

// abandoner is a connection that can be ended after a panic.
type abandoner interface{ EndAfterPanic(why error) }

// contain is deferred around one piece of work that somebody posted.
func (l *Shard) Contain() {
	if l.dev == nil {
		return
	}
	v := recover()
	if v == nil {
		return
	}
	p := l.Doing
	l.Doing = nil
	d := &stack.Defect{Value: v, Trace: debug.Stack()}
	if p != nil {
		Attempt(func() { p.EndAfterPanic(fmt.Errorf("%w: %v", verbs.ErrDefect, v)) })
	}
	l.Defect(d)
}

func Attempt(f func()) (failed any) {
	defer func() { failed = recover() }()
	f()
	return nil
}

// defect counts and logs a panic that was contained. What it left is looked at when the turn is over.
func (l *Shard) Defect(d *stack.Defect) {
	l.Suspect = true
	c := &l.dev.contained
	c.panics.Add(1)
	if now := time.Now().UnixNano(); now-c.logged.Load() < int64(defectPause) {
		return
	} else {
		c.logged.Store(now)
	}
	local, remote := TupleAddrs(&d.Tuple)
	l.dev.log.Error("defect of xwarp: the connection that was being served ends, the others go on",
		"queue", l.Queue, "local", local,
		"remote", remote, "panic", fmt.Sprint(d.Value), "panics", c.panics.Load(), "stack",
		string(d.Trace), "next", "report this line")
}

// defectPause is how long after the log line of one defect no other is written: a peer that knows how to
// cause them shall not fill the disk with stacks.
const defectPause = time.Second

// Contained counts what ended a part of a device and nothing else.
type Contained struct {
	RegionFaults uint64 // memory regions that were lost because their memory could not be accessed
	Panics       uint64 // defects of this program
	Stalls       uint64 // times that a worker stood still
}

type contained struct {
	regions, panics, stalls atomic.Uint64
	logged                  atomic.Int64 // when the last defect was logged
}

// Contained returns what the device survived until now.
func (d *Device) Contained() Contained {
	c := &d.contained
	return Contained{RegionFaults: c.regions.Load(), Panics: c.panics.Load(),
		Stalls: c.stalls.Load()}
}

// Failed is closed when the device is of no use any more, because its interface is gone (ErrGone), or a defect has left
// the tables of a worker in disorder; Err says more, and nothing is logged. The connections of that worker are reset,
// and nothing is accepted any more. The device must be closed, and may be opened again.
func (d *Device) Failed() <-chan struct{} { return d.failed }

// Err returns why the device failed, nil while it has not.
func (d *Device) Err() error {
	select {
	case <-d.failed:
		return d.failure
	default:
		return nil
	}
}

func (d *Device) fail(err error) {
	d.failing.Do(func() {
		d.failure = err
		close(d.failed)
	})
}
