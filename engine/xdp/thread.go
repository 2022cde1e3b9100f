package xdp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
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

// thread is the OS thread of a queue, which owns the queue's socket. It runs the workers of the trunk's devices in
// turn.
type thread struct {
	queue     int
	port      ring.Port                   // the socket
	group     *ring.Group                 // the sockets of a bond's members, which port contains; otherwise nil
	batch     [stack.MaxBatch]ring.Packet // see distribute
	workers   atomic.Pointer[[]*worker]   // in the order in which their devices were opened
	efd       int                         // eventfd that wakes the thread
	asleep    atomic.Bool
	stop      atomic.Bool
	running   sync.WaitGroup
	notifier  notifier
	notifying bool // the notifier is running

	mu       sync.Mutex // guards calls and isAlive, and changes of workers
	calls    []func()   // functions that do has passed to the thread
	isAlive  bool       // start has started the thread, which has not ended
	hasCalls atomic.Bool
	between  sync.Mutex // held while functions of do run although the thread does not
}

func newThread(queue int, p ring.Port) (*thread, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	t := &thread{queue: queue, port: p, efd: fd}
	t.workers.Store(new([]*worker))
	return t, nil
}

// start starts the thread on a CPU; -1 means any. It does nothing if the thread was started. busy is how long an idle
// thread spins before it sleeps; a negative value means always.
func (t *thread) start(cpu int, busy time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isAlive && !t.stop.Load() {
		t.isAlive = true
		t.running.Add(1)
		go t.runThread(cpu, busy)
	}
}

// close stops the thread and closes its socket. The thread must have no workers.
func (t *thread) close() error {
	t.stop.Store(true)
	t.Wake()
	t.running.Wait()
	unix.Close(t.efd)
	return t.port.Close()
}

// hasFailed reports whether the thread has ended. Before close, that means that it failed.
func (t *thread) hasFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop.Load()
}

// addWorker makes the thread serve w.
func (t *thread) addWorker(w *worker) {
	t.change(func(all []*worker) []*worker { return append(all, w) })
	t.Wake()
}

// removeWorker makes the thread no longer serve w. It is called between turns of the thread, or when the thread does
// not run.
func (t *thread) removeWorker(w *worker) {
	t.change(func(all []*worker) []*worker {
		return slices.DeleteFunc(all, func(v *worker) bool { return v == w })
	})
}

func (t *thread) change(f func([]*worker) []*worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := f(slices.Clone(*t.workers.Load()))
	t.workers.Store(&all)
}

// do runs f between two turns of the thread, or on the calling goroutine if the thread does not run. It returns when f
// is done.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.mu.Lock()
	if !t.isAlive {
		t.mu.Unlock()
		t.between.Lock()
		defer t.between.Unlock()
		f()
		return
	}
	t.calls = append(t.calls, func() { defer close(done); f() })
	t.hasCalls.Store(true)
	t.mu.Unlock()
	t.Wake()
	<-done
}

// runCalls runs the waiting functions of do.
func (t *thread) runCalls() {
	t.mu.Lock()
	calls := t.calls
	t.calls = nil
	t.hasCalls.Store(false)
	t.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// Wake implements core.Worker.
func (t *thread) Wake() {
	if t.asleep.Load() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		unix.Write(t.efd, one[:])
	}
}

// Notify implements core.Worker.
func (t *thread) Notify(f func()) {
	if !t.notifying {
		f()
		return
	}
	t.notifier.pending = append(t.notifier.pending, f)
}

// runThread is the body of the thread's goroutine.
func (t *thread) runThread(cpu int, busy time.Duration) {
	debug.SetPanicOnFault(true) // see core.Device.regionLost
	runtime.LockOSThread()      // never unlocked: the thread ends with its affinity
	defer t.running.Done()
	defer t.endCalls()
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		unix.SchedSetaffinity(0, &set)
	}
	defer t.goIdle()
	if err := t.notifier.start(); err != nil {
		t.failWorkers(err)
		return
	}
	t.notifying = true
	defer func() { t.notifying = false; t.notifier.stop() }()
	if err := t.turnLoop(busy); err != nil {
		t.failWorkers(err)
	}
}

// endCalls records that the thread has ended, and runs the functions of do that still wait.
func (t *thread) endCalls() {
	t.mu.Lock()
	t.isAlive = false
	t.stop.Store(true)
	t.mu.Unlock()
	t.between.Lock()
	defer t.between.Unlock()
	t.runCalls()
}

// failWorkers ends all workers with err.
func (t *thread) failWorkers(err error) {
	for _, w := range *t.workers.Load() {
		w.fail(err)
	}
}

// turnLoop runs turns: it receives, runs posted work, transmits, and sleeps if there is nothing to do. It returns nil
// after close, and an error if the thread cannot continue.
func (t *thread) turnLoop(busy time.Duration) (err error) {
	defer guard.Recover(func(v any) { err = t.onDefect(v) })
	p := clockSkip{last: core.Now()}
	idleSince := p.last
	active := false // a turn since p.last had work, but did not read the clock
	for !t.stop.Load() {
		if len(t.notifier.pending) > 0 {
			t.notifier.flush()
		}
		if t.hasCalls.Load() {
			t.runCalls()
		}
		workers := *t.workers.Load()
		arrived := t.fetch(workers)
		now := p.last
		if arrived {
			now = core.Now()
			for _, w := range workers {
				w.StartTurn(now)
				w.EnterPlace(core.AtReceive)
				w.stk.Receive(now)
			}
		}
		worked, quiet := arrived, true
		for _, w := range workers {
			worked = w.runPosted() || worked
			quiet = quiet && w.stk.Quiet()
		}
		if quiet && p.skip() {
			active = active || worked
			continue
		}
		if !arrived {
			now = core.Now()
			for _, w := range workers {
				w.StartTurn(now)
			}
		}
		p.read(now)
		blocked := false
		for _, w := range workers {
			w.EnterPlace(core.AtTransmit)
			worked = w.stk.Transmit(now) || worked
			blocked = blocked || w.stk.Blocked()
			if w.CheckTables {
				if err := w.check(); err != nil {
					return err
				}
			}
		}
		worked, active = worked || active, false
		if worked || blocked {
			idleSince = now
			continue
		}
		switch {
		case busy < 0:
		case t.notifier.signalled:
			t.notifier.signalled = false
			// The notifier's goroutine may wait for this processor.
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case now.Sub(idleSince) > busy:
			t.sleep(now)
			idleSince = core.Now()
			p.last = idleSince
		}
	}
	return nil
}

// fetch fetches received frames for the workers, and reports whether there are any. Without workers it drops them.
func (t *thread) fetch(workers []*worker) (arrived bool) {
	for _, w := range workers {
		arrived = w.stk.Fetch() || arrived
	}
	if len(workers) == 0 {
		t.distribute()
		t.port.Refill()
	}
	return arrived
}

// distribute receives a batch of frames from the socket and appends each to the lane of its VLAN's worker. It drops
// frames of a VLAN without a worker: the steering program claimed them before the VLAN was closed.
func (t *thread) distribute() {
	for i := range t.port.Recv(t.batch[:]) {
		p := &t.batch[i]
		if l := t.laneOf(p); l != nil {
			l.frames = append(l.frames, *p)
		} else {
			t.port.Release(p)
		}
	}
}

func (t *thread) laneOf(p *ring.Packet) *lane {
	vlan, ok := stack.VLANOf(p.Frag(0))
	for _, w := range *t.workers.Load() {
		if ok && w.lane.vlan == vlan {
			return w.lane
		}
	}
	return nil
}

// lane is the port of one worker. It sends through the socket of the thread, and receives the frames of the worker's
// VLAN from it.
type lane struct {
	ring.Port
	thread *thread
	vlan   uint16
	frames []ring.Packet // received from the socket and not yet returned by Recv
}

// Recv implements ring.Port. If the thread has only one worker, Recv receives from the socket directly, because the
// steering program claims no frames of other VLANs. Otherwise the frames of a batch are distributed to the lanes first.
func (l *lane) Recv(batch []ring.Packet) int {
	if len(l.frames) == 0 {
		if len(*l.thread.workers.Load()) == 1 {
			return l.Port.Recv(batch)
		}
		l.thread.distribute()
	}
	n := copy(batch, l.frames)
	l.frames = slices.Delete(l.frames, 0, n)
	return n
}

// Close implements ring.Port. It releases the frames of the lane. The socket stays open: thread.close closes it.
func (l *lane) Close() error {
	for i := range l.frames {
		l.Port.Release(&l.frames[i])
	}
	l.frames = nil
	return nil
}

// onDefect reports the panic v, which was not in the service of one connection, so that the thread cannot continue. It
// returns the error with which the workers end.
func (t *thread) onDefect(v any) error {
	stack := debug.Stack()
	for _, w := range *t.workers.Load() {
		tuple := w.stk.Serving()
		w.ReportDefect(&tuple, v, stack)
	}
	return t.disorder(fmt.Errorf("%w: %v", verbs.ErrDefect, v))
}

func (t *thread) disorder(err error) error {
	return fmt.Errorf("worker of queue %d: inconsistent state: %w", t.queue, err)
}

func (t *thread) goIdle() {
	for _, w := range *t.workers.Load() {
		w.GoIdle()
	}
}

// maxSleep is the maximum duration of one sleep, so that a lost wake-up cannot stall a connection.
const maxSleep = 100 * time.Millisecond

func (t *thread) sleep(now tick.Time) {
	d := maxSleep
	for _, w := range *t.workers.Load() {
		if at := w.stk.Deadline(); at != tick.Never {
			d = min(d, at.Sub(now))
		}
	}
	if d <= 0 || !t.notifier.flush() {
		return
	}
	t.asleep.Store(true)
	t.goIdle()
	if !t.hasPosted() && !t.stop.Load() {
		if t.port.Wait(d, t.efd)&ring.ReadyExtra != 0 {
			var b [8]byte
			unix.Read(t.efd, b[:])
		}
	}
	t.asleep.Store(false)
}

// hasPosted reports whether the next turn has posted work or functions of do.
func (t *thread) hasPosted() bool {
	return t.hasCalls.Load() ||
		slices.ContainsFunc(*t.workers.Load(), func(w *worker) bool { return w.HasPosted() })
}

// clockSkip decides in which idle turns a thread reads the clock. A reading costs more than everything else in an idle
// turn.
type clockSkip struct {
	last    tick.Time // the last reading
	skipped int       // number of calls of skip since the last reading
	most    int       // number of consecutive turns that may skip the reading
}

const (
	maxSkip = 16                   // turns
	maxLate = 1 * tick.Microsecond // approximate maximum lateness of a timer, if turns do not vary in length
)

// skip reports whether this turn need not read the clock.
func (p *clockSkip) skip() bool {
	p.skipped++
	return p.skipped <= p.most
}

// read records a reading of the clock, and adapts the number of turns to skip.
func (p *clockSkip) read(now tick.Time) {
	switch {
	case now.Sub(p.last) > maxLate:
		p.most /= 2
	case p.skipped > p.most: // the limit p.most forced this reading, not other work
		p.most = min(p.most+1, maxSkip)
	}
	p.last, p.skipped = now, 0
}
