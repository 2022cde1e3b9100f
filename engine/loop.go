package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"xwarp/ddp"
	"xwarp/engine/fair"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// epoch is where the engine's clock starts; tick.Time counts from it.
var epoch = time.Now()

func clock() tick.Time { return tick.Time(time.Since(epoch)) }

// loop is what every worker has: the memory and the connections that it alone touches, and the two ways in which
// other goroutines reach it. Everything of a queue pair below its rings belongs to exactly one loop.
type loop struct {
	table  *ddp.Table
	pool   *mpa.Pool
	thread waker

	mu     sync.Mutex
	mail   []func()
	todo   []func() // owned by the worker: was mail, and todo[:done] has run
	done   int
	ended  bool
	hasNew atomic.Bool
	over   atomic.Bool // ended, for those who only post work

	rung atomic.Pointer[doorbell] // those that were rung, a stack
	// Owned by the worker: those that wait for their turn, and the owners of queue pairs.
	bells  fair.Queue[*doorbell]
	common share // of what has no owner
	shares map[any]*share

	index     int  // among those of the device that have connections
	queue     int  // of the device; -1 for none
	consuming bool // the worker is in its consumer's callback

	dev     *Device
	doing   abandoner        // whose work is being done, nil for nobody's in particular
	serving func() tcp.Tuple // the connection that is or was served last; may be nil
	suspect bool             // there was a panic: the tables want to be checked
	stack   *stack.Stack     // the worker's; nil on the kernel's sockets
	sums    sums
	watched
}

// doorbell has the worker call its owner's kick once after one or more rings.
type doorbell struct {
	owner   bellOwner
	pending atomic.Bool // it is among those that were rung
	next    *doorbell
	waits   atomic.Pointer[loop] // the one whose bells it is in; nil: none
}

// bellOwner is what a doorbell rings for.
type bellOwner interface {
	abandoner
	// kick serves the owner once, for a bounded time, and returns the number of work requests taken. It runs on the
	// worker of l.
	kick(l *loop) (taken int)
	// bellsOn returns where the doorbell waits for its turn on the worker of l, which calls it.
	bellsOn(l *loop) *fair.Class[*doorbell]
}

// waker is the worker of a loop.
type waker interface {
	wake()         // it may sleep: it looks at what was posted
	tell(f func()) // on its thread: f wakes goroutines, and does not block
}

func newLoop(thread waker) *loop {
	return &loop{queue: -1, table: ddp.NewTable(osRandom{}), pool: mpa.NewPool(0, 0),
		thread: thread, sums: newSums(), shares: map[any]*share{}}
}

// post has the worker run f soon; it reports false when the worker has ended.
func (l *loop) post(f func()) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.mail = append(l.mail, f)
	l.hasNew.Store(true)
	l.mu.Unlock()
	l.thread.wake()
	return true
}

// tell has f wake goroutines soon: on the thread of l, or on any without a worker.
func (l *loop) tell(f func()) {
	if l == nil {
		f()
		return
	}
	l.thread.tell(f)
}

// call has the worker run f and waits for it. It fails with ErrClosed, or ErrDefect when f panicked.
func (l *loop) call(f func()) error { return l.callFor(nil, f) }

// do is call for what can fail.
func (l *loop) do(f func() error) (err error) {
	if e := l.call(func() { err = f() }); e != nil {
		return e
	}
	return err
}

// callFor is call for work on p, which ends when f panics.
func (l *loop) callFor(p abandoner, f func()) error {
	done := make(chan struct{})
	err := verbs.ErrDefect
	posted := l.post(func() {
		l.doing = p
		defer l.tell(func() { close(done) })
		f()
		err = nil
	})
	if !posted {
		return verbs.ErrClosed
	}
	<-done
	return err
}

// work runs what was posted and answers the doorbells that were rung, up to the bounds of a turn; it reports whether
// there was anything. Only the worker calls it.
func (l *loop) work() bool {
	worked := false
	for left := mailPerTurn; left > 0 && l.takeMail(); {
		l.enter(atMail)
		l.runMail(&left) // once, or once more after each panic
		worked = true
	}
	if l.rung.Load() != nil { // a swap costs ten times as much, on every turn of a worker that spins
		l.takeRung()
	}
	if l.bells.Len() == 0 {
		return worked
	}
	l.enter(atDoorbells)
	for left := requestsPerTurn; left > 0 && l.bells.Len() > 0; {
		l.answer(&left)
	}
	return true
}

// takeMail moves what was posted to todo when that is done, and reports whether there is anything to run.
func (l *loop) takeMail() bool {
	switch {
	case l.done < len(l.todo):
		return true
	case !l.hasNew.Load():
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.todo, l.mail, l.done = l.mail, l.todo[:0], 0
	l.hasNew.Store(false)
	return true
}

// runMail runs what was posted, up to left functions, or to the first panic.
func (l *loop) runMail(left *int) {
	defer l.contain()
	for *left > 0 && l.takeMail() {
		f := l.todo[l.done]
		l.todo[l.done] = nil
		l.done++
		*left--
		l.doing = nil
		f()
	}
}

// takeRung has the doorbells that were rung wait for their turns.
func (l *loop) takeRung() {
	for b := l.rung.Swap(nil); b != nil; {
		this := b
		b, this.next = this.next, nil
		this.pending.Store(false)
		l.again(this)
	}
}

// answer answers doorbells, up to the first panic, until left work requests were taken; a doorbell counts as one at
// least.
func (l *loop) answer(left *int) {
	defer l.contain()
	for *left > 0 {
		b, ok := l.bells.Next()
		if !ok {
			return
		}
		*left-- // also of one that panics
		b.waits.CompareAndSwap(l, nil)
		l.doing = b.owner
		*left -= max(b.owner.kick(l)-1, 0)
	}
}

// pending reports whether work has something to do.
func (l *loop) pending() bool {
	return l.hasNew.Load() || l.rung.Load() != nil || l.done < len(l.todo) || l.bells.Len() > 0
}

// ring has the worker call the owner of b soon.
func (l *loop) ring(b *doorbell) {
	if b.pending.Swap(true) {
		return
	}
	for {
		top := l.rung.Load()
		b.next = top
		if l.rung.CompareAndSwap(top, b) {
			break
		}
	}
	l.thread.wake()
}

// failDevice gives the device up because of err.
func (l *loop) failDevice(err error) { l.dev.fail(err) }

// end makes post and call fail from now on, and runs what came before.
func (l *loop) end() {
	l.mu.Lock()
	l.ended = true
	l.over.Store(true)
	l.mu.Unlock()
	for l.pending() {
		l.work()
	}
}
