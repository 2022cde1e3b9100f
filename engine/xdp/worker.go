package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp/tick"
)

// worker is the thread of one queue. It owns the port, the stack and everything in the shard.
type worker struct {
	*core.Shard
	port      ring.Port
	stk       *stack.Stack
	efd       int // eventfd that wakes the worker
	asleep    atomic.Bool
	stop      atomic.Bool
	running   sync.WaitGroup
	started   atomic.Bool
	lostErr   error // with CheckTables: the interface is gone, and this is the error
	notifier  notifier
	notifying bool // the notifier is running

	consumer func() bool // Config.Consumer, nil for none
}

func newWorker(p ring.Port) (*worker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &worker{port: p, efd: fd}
	w.Shard = core.NewShard(w)
	w.running.Add(1)
	return w, nil
}

func (w *worker) closeFiles() { unix.Close(w.efd) }

// Wake implements core.Worker.
func (w *worker) Wake() {
	if w.asleep.Load() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		unix.Write(w.efd, one[:])
	}
}

// Notify implements core.Worker.
func (w *worker) Notify(f func()) {
	if !w.notifying {
		f()
		return
	}
	w.notifier.pending = append(w.notifier.pending, f)
}

// runThread is the body of the worker's goroutine.
func (w *worker) runThread(cpu int, busy time.Duration) {
	w.started.Store(true)
	debug.SetPanicOnFault(true) // see core.Device.regionLost
	runtime.LockOSThread()      // never unlocked: the thread ends with its affinity
	defer w.running.Done()
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		unix.SchedSetaffinity(0, &set)
	}
	w.RecordGoroutine()
	defer w.GoIdle()
	if err := w.notifier.start(); err != nil {
		w.fail(err)
		return
	}
	w.notifying = true
	defer func() { w.notifying = false; w.notifier.stop() }()
	if err := w.turnLoop(busy); err != nil {
		w.fail(err)
	}
}

// turnLoop runs turns: it receives, runs posted work, transmits, and sleeps when there is nothing to do. It returns nil
// after stopThread, and an error when the worker cannot go on.
func (w *worker) turnLoop(busy time.Duration) (err error) {
	defer guard.Recover(func(v any) { err = w.onDefect(v) })
	p := clockSkip{last: core.Now()}
	idleSince := p.last
	active := false // there was work since p.last, in turns without a clock reading
	for !w.stop.Load() {
		if len(w.notifier.pending) > 0 {
			w.notifier.flush()
		}
		arrived := w.stk.Fetch()
		now := p.last
		if arrived {
			now = core.Now()
			w.StartTurn(now)
			w.EnterPlace(core.AtReceive)
			w.stk.Receive(now)
		}
		worked := w.consumer != nil && w.callConsumer()
		worked = w.RunPosted() || worked || arrived
		if w.stk.Quiet() && p.skip() {
			active = active || worked
			continue
		}
		if !arrived {
			now = core.Now()
			w.StartTurn(now)
		}
		p.read(now)
		w.EnterPlace(core.AtTransmit)
		worked = w.stk.Transmit(now) || worked || active
		active = false
		if w.CheckTables {
			w.CheckTables = false
			if w.lostErr != nil {
				return w.lostErr
			}
			if err := w.stk.Check(); err != nil {
				return w.disorder(err)
			}
		}
		if worked || w.stk.Blocked() {
			idleSince = now
			continue
		}
		switch {
		case busy < 0:
		case w.notifier.signalled:
			w.notifier.signalled = false
			// The notifier's goroutine may share this processor.
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case now.Sub(idleSince) > busy:
			w.sleep(now)
			idleSince = core.Now()
			p.last = idleSince
		}
	}
	return nil
}

// onDefect reports a panic outside of the service of one connection, after which the worker cannot go on.
func (w *worker) onDefect(v any) error {
	t := w.stk.Serving()
	w.ReportDefect(&t, v, debug.Stack())
	return w.disorder(fmt.Errorf("%w: %v", verbs.ErrDefect, v))
}

func (w *worker) disorder(err error) error {
	return fmt.Errorf("worker of queue %d: inconsistent state: %w", w.Queue, err)
}

// fail ends the worker with err. Posts fail from now on, its connections end, and the device fails.
func (w *worker) fail(err error) {
	w.FailDevice(err)
	w.Shard.CloseMailbox()
	now := core.Now()
	var all []*stack.Endpoint
	w.stk.Endpoints(func(e *stack.Endpoint) { all = append(all, e) })
	for _, e := range all {
		w.stk.Abandon(e, err, now)
	}
	core.Attempt(func() { w.stk.Transmit(now) }) // the resets
}

// close resets the remaining connections, after stopThread.
func (w *worker) close() (err error) {
	if v := core.Attempt(func() { err = w.stk.Close(core.Now()) }); v != nil {
		err = fmt.Errorf("worker of queue %d: %w: %v", w.Queue, verbs.ErrDefect, v)
		core.Attempt(func() { err = errors.Join(err, w.port.Close()) })
	}
	return err
}

func (w *worker) callConsumer() bool {
	w.Consuming = true
	w.EnterPlace(core.AtConsumer)
	worked := w.consumer()
	w.Consuming = false
	return worked
}

// maxSleep is the maximum duration of one sleep, so that a lost wake-up cannot stall a connection.
const maxSleep = 100 * time.Millisecond

func (w *worker) sleep(now tick.Time) {
	d := maxSleep
	if at := w.stk.Deadline(); at != tick.Never {
		d = min(d, at.Sub(now))
	}
	if d <= 0 || !w.notifier.flush() {
		return
	}
	w.asleep.Store(true)
	w.GoIdle()
	if !w.HasPosted() && !w.stop.Load() {
		if w.port.Wait(d, w.efd)&ring.ReadyExtra != 0 {
			var b [8]byte
			unix.Read(w.efd, b[:])
		}
	}
	w.asleep.Store(false)
}

// stopThread stops the worker and waits for it.
func (w *worker) stopThread() {
	w.stop.Store(true)
	w.Wake()
	if w.started.Load() {
		w.running.Wait()
	}
}

// clockSkip decides in which idle turns the worker reads the clock. A reading costs more than everything else in such a
// turn.
type clockSkip struct {
	last    tick.Time // the last reading
	skipped int       // number of turns since then
	most    int       // maximum of skipped
}

const (
	maxSkip = 16                   // turns
	maxLate = 1 * tick.Microsecond // approximate maximum lateness of a timer; turns with a consumer differ in length
)

// skip reports whether this turn may do without the time.
func (p *clockSkip) skip() bool {
	p.skipped++
	return p.skipped <= p.most
}

// read records a reading of the clock, and adapts the number of turns to skip.
func (p *clockSkip) read(now tick.Time) {
	switch {
	case now.Sub(p.last) > maxLate:
		p.most /= 2
	case p.skipped > p.most: // the limit ended the skipping
		p.most = min(p.most+1, maxSkip)
	}
	p.last, p.skipped = now, 0
}
