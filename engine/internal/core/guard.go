package core

import (
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"xwarp/engine/guard"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// A panic on a worker is a bug, except for the loss of registered memory (see regionLost). It ends the connection being
// served. The worker continues if its tables are consistent; otherwise the device fails. Fatal errors of the Go runtime
// cannot be contained: concurrent map access, stack overflow, out of memory.

// panicTarget is a connection that ends if a panic happens while it is served.
type panicTarget interface{ EndAfterPanic(why error) }

// ContainPanic handles v, the value of a panic in a posted function, in a doorbell or in the step of a connection: it
// ends s.Current and reports the defect. It is an argument of guard.Recover. A shard without a device panics again.
func (s *Shard) ContainPanic(v any) {
	if s.dev == nil {
		panic(v)
	}
	p := s.Current
	s.Current = nil
	trace := debug.Stack()
	if p != nil {
		Attempt(func() { p.EndAfterPanic(fmt.Errorf("%w: %v", verbs.ErrDefect, v)) })
	}
	s.ReportDefect(nil, v, trace)
}

// Attempt calls f and returns the value of its panic, or nil.
func Attempt(f func()) (failed any) {
	defer guard.Recover(func(v any) { failed = v })
	f()
	return nil
}

// ReportDefect counts a contained panic with v, and logs it unless it logged another less than defectPause ago. t is
// the connection that it ended, or nil, and trace the stack of the panic. The worker checks its tables at the end of
// the turn.
func (s *Shard) ReportDefect(t *tcp.Tuple, v any, trace []byte) {
	s.CheckTables = true
	c := &s.dev.contained
	c.panics.Add(1)
	if now := time.Now().UnixNano(); now-c.logged.Load() < int64(defectPause) {
		return
	} else {
		c.logged.Store(now)
	}
	var local, remote netip.AddrPort
	if t != nil {
		local, remote = TupleAddrs(t)
	}
	s.dev.log.Error("bug in xwarp: connection aborted; others are not affected",
		"queue", s.Queue, "local", local,
		"remote", remote, "panic", fmt.Sprint(v), "panics", c.panics.Load(), "stack",
		string(trace), "next", "report this line")
}

// defectPause is the minimum interval of log lines about bugs, so that a peer that can trigger them cannot fill the
// disk with stacks.
const defectPause = time.Second

// Contained counts failures that ended only a part of a device.
type Contained struct {
	RegionFaults uint64 // memory regions revoked because their memory was inaccessible
	Panics       uint64 // panics (bugs)
	Stalls       uint64 // times that a turn of a worker exceeded Options.Stall
}

type contained struct {
	regions, panics, stalls atomic.Uint64
	logged                  atomic.Int64 // when the last defect was logged
}

// Contained returns the counters of the failures that the device has survived.
func (d *Device) Contained() Contained {
	c := &d.contained
	return Contained{RegionFaults: c.regions.Load(), Panics: c.panics.Load(),
		Stalls: c.stalls.Load()}
}

// Failed returns a channel that is closed when the device is no longer usable: its interface is gone (ErrGone), or a
// bug made the tables of a worker inconsistent. Err returns the cause; nothing is logged. The connections of the
// workers concerned are reset, and no connection is accepted. The program must close the device, and may reopen it.
func (d *Device) Failed() <-chan struct{} { return d.failed }

// Err returns the error with which the device failed, or nil.
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
