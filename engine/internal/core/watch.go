package core

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"xwarp/tcp/tick"
)

// watched is the progress of a worker, which the watchdog reads.
type watched struct {
	since     atomic.Int64 // time at which the current turn started, on the engine's clock; 0 while the worker sleeps
	place     atomic.Int32 // current place in the turn
	goroutine atomic.Int64
	stalled   atomic.Int64 // value of since for the turn that the watchdog reported; 0: none
}

type place = int32

// The places of a worker in its turn.
const (
	AtReceive place = iota
	AtConsumer
	atMail
	atDoorbells
	AtTimers
	AtTransmit
)

var placeNames = [...]string{
	AtReceive: "receiving", AtConsumer: "in xdp.Config.Consumer",
	atMail:      "running posted functions",
	atDoorbells: "taking work requests",
	AtTimers:    "serving connections", AtTransmit: "transmitting or in timers",
}

func (w *watched) StartTurn(now tick.Time) { w.since.Store(int64(now)) }
func (w *watched) GoIdle()                 { w.since.Store(0) }

func (w *watched) EnterPlace(p place) {
	if w.place.Load() != p {
		w.place.Store(p)
	}
}

// RecordGoroutine records the number of the calling goroutine, which is the worker's.
func (w *watched) RecordGoroutine() {
	var b [64]byte
	f := bytes.Fields(b[:runtime.Stack(b[:], false)]) // "goroutine 7 [running]:"
	if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
		w.goroutine.Store(n)
	}
}

// DefaultStall is how long one turn of a worker may last before the watchdog reports it. A turn takes microseconds, on
// an overloaded machine some tenths of a second.
const DefaultStall = 5 * time.Second

// watchLoop checks that the workers make progress, until the device is closed.
func (d *Device) watchLoop() {
	limit := cmp.Or(d.opt.Stall, DefaultStall)
	if limit == tick.Forever {
		return
	}
	seen := map[*Shard]int64{}
	t := time.NewTicker(limit / 4)
	defer t.Stop()
	for {
		select {
		case <-d.closing:
			return
		case <-t.C:
		}
		for _, s := range d.allShards() {
			since := s.since.Load()
			if s.stalled.Load() != 0 && since != s.stalled.Load() {
				d.log.Warn("worker runs again after a stall", "queue", s.Queue)
				s.stalled.Store(0)
			}
			// The same turn must be seen twice: a process that was stopped as a whole has not stalled.
			if since != 0 && since == seen[s] && since != s.stalled.Load() &&
				time.Duration(Now())-time.Duration(since) > limit {
				s.stalled.Store(since)
				d.contained.stalls.Add(1)
				d.logStall(s)
			}
			seen[s] = since
		}
	}
}

// logStall logs the stack of a worker whose turn lasts too long. The stack has its own log line: if a thread waits for
// a page of a file, the Go runtime may have to wait for it before it can read the stack.
func (d *Device) logStall(s *Shard) {
	d.log.Error("worker stalled", "queue", s.Queue, "error", s.stall(), "next",
		"report the stack in the next line")
	b := make([]byte, maxStacks)
	b = b[:runtime.Stack(b, true)]
	head := fmt.Appendf(nil, "goroutine %d ", s.goroutine.Load())
	for _, g := range bytes.Split(b, []byte("\n\n")) {
		if bytes.HasPrefix(g, head) {
			d.log.Error("worker stalled", "queue", s.Queue, "stack", string(g))
			return
		}
	}
}

// maxStacks is the maximum number of bytes of stack traces that are searched.
const maxStacks = 4 << 20

// stall returns an error while the watchdog has found the current turn to last too long.
func (s *Shard) stall() error {
	since := s.stalled.Load()
	if since == 0 || since != s.since.Load() {
		return nil
	}
	who := ""
	if s.Serving != nil {
		if t := s.Serving(); t.LocalPort != 0 {
			local, remote := TupleAddrs(&t)
			who = fmt.Sprintf(", last on connection %v to %v", local, remote)
		}
	}
	took := (time.Duration(Now()) - time.Duration(since)).Round(time.Millisecond)
	return fmt.Errorf("worker of queue %d stalled for %v, %s%s", s.Queue, took,
		placeNames[s.place.Load()], who)
}

// Stalled returns an error while the turn of a worker exceeds Options.Stall.
func (d *Device) Stalled() error {
	for _, s := range d.allShards() {
		if err := s.stall(); err != nil {
			return err
		}
	}
	return nil
}
