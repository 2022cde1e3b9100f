package core

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
var Epoch = time.Now()

func Now() tick.Time { return tick.Time(time.Since(Epoch)) }

// loop is what every worker has: the memory and the connections that it alone touches, and the two ways in which
// other goroutines reach it. Everything of a queue pair below its rings belongs to exactly one loop.
type Shard struct {
	table  *ddp.Table
	pool   *mpa.Pool
	thread Worker

	mu     sync.Mutex
	mail   []func()
	todo   []func() // owned by the worker: was mail, and todo[:done] has run
	done   int
	ended  bool
	hasNew atomic.Bool
	over   atomic.Bool // ended, for those who only post work

	rung atomic.Pointer[Doorbell] // those that were rung, a stack
	// Owned by the worker: those that wait for their turn, and the owners of queue pairs.
	bells  fair.Queue[*Doorbell]
	Common Share // of what has no owner
	shares map[any]*Share

	index     int  // among those of the device that have connections
	Queue     int  // of the device; -1 for none
	Consuming bool // the worker is in its consumer's callback

	dev     *Device
	Doing   abandoner        // whose work is being done, nil for nobody's in particular
	Serving func() tcp.Tuple // the connection that is or was served last; may be nil
	Suspect bool             // there was a panic: the tables want to be checked
	Stack   *stack.Stack     // the worker's; nil on the kernel's sockets
	Sums    sums
	watched
}

// doorbell has the worker call its owner's kick once after one or more rings.
type Doorbell struct {
	Owner   bellOwner
	pending atomic.Bool // it is among those that were rung
	next    *Doorbell
	waits   atomic.Pointer[Shard] // the one whose bells it is in; nil: none
}

// bellOwner is what a doorbell rings for.
type bellOwner interface {
	abandoner
	// kick serves the owner once, for a bounded time, and returns the number of work requests taken. It runs on the
	// worker of l.
	Kick(l *Shard) (taken int)
	// bellsOn returns where the doorbell waits for its turn on the worker of l, which calls it.
	BellsOn(l *Shard) *fair.Class[*Doorbell]
}

// waker is the worker of a loop.
type Worker interface {
	Wake()         // it may sleep: it looks at what was posted
	Tell(f func()) // on its thread: f wakes goroutines, and does not block
}

func NewShard(thread Worker) *Shard {
	return &Shard{Queue: -1, table: ddp.NewTable(osRandom{}), pool: mpa.NewPool(0, 0),
		thread: thread, Sums: newSums(), shares: map[any]*Share{}}
}

// post has the worker run f soon; it reports false when the worker has ended.
func (l *Shard) Post(f func()) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.mail = append(l.mail, f)
	l.hasNew.Store(true)
	l.mu.Unlock()
	l.thread.Wake()
	return true
}

// tell has f wake goroutines soon: on the thread of l, or on any without a worker.
func (l *Shard) tell(f func()) {
	if l == nil {
		f()
		return
	}
	l.thread.Tell(f)
}

// call has the worker run f and waits for it. It fails with ErrClosed, or ErrDefect when f panicked.
func (l *Shard) Call(f func()) error { return l.CallFor(nil, f) }

// do is call for what can fail.
func (l *Shard) Do(f func() error) (err error) {
	if e := l.Call(func() { err = f() }); e != nil {
		return e
	}
	return err
}

// callFor is call for work on p, which ends when f panics.
func (l *Shard) CallFor(p abandoner, f func()) error {
	done := make(chan struct{})
	err := verbs.ErrDefect
	posted := l.Post(func() {
		l.Doing = p
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
func (l *Shard) Work() bool {
	worked := false
	for left := mailPerTurn; left > 0 && l.takeMail(); {
		l.EnterPlace(atMail)
		l.runMail(&left) // once, or once more after each panic
		worked = true
	}
	if l.rung.Load() != nil { // a swap costs ten times as much, on every turn of a worker that spins
		l.takeRung()
	}
	if l.bells.Len() == 0 {
		return worked
	}
	l.EnterPlace(atDoorbells)
	for left := requestsPerTurn; left > 0 && l.bells.Len() > 0; {
		l.answer(&left)
	}
	return true
}

// takeMail moves what was posted to todo when that is done, and reports whether there is anything to run.
func (l *Shard) takeMail() bool {
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
func (l *Shard) runMail(left *int) {
	defer l.Contain()
	for *left > 0 && l.takeMail() {
		f := l.todo[l.done]
		l.todo[l.done] = nil
		l.done++
		*left--
		l.Doing = nil
		f()
	}
}

// takeRung has the doorbells that were rung wait for their turns.
func (l *Shard) takeRung() {
	for b := l.rung.Swap(nil); b != nil; {
		this := b
		b, this.next = this.next, nil
		this.pending.Store(false)
		l.again(this)
	}
}

// answer answers doorbells, up to the first panic, until left work requests were taken; a doorbell counts as one at
// least.
func (l *Shard) answer(left *int) {
	defer l.Contain()
	for *left > 0 {
		b, ok := l.bells.Next()
		if !ok {
			return
		}
		*left-- // also of one that panics
		b.waits.CompareAndSwap(l, nil)
		l.Doing = b.Owner
		*left -= max(b.Owner.Kick(l)-1, 0)
	}
}

// pending reports whether work has something to do.
func (l *Shard) Pending() bool {
	return l.hasNew.Load() || l.rung.Load() != nil || l.done < len(l.todo) || l.bells.Len() > 0
}

// ring has the worker call the owner of b soon.
func (l *Shard) Ring(b *Doorbell) {
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
	l.thread.Wake()
}

// failDevice gives the device up because of err.
func (l *Shard) FailDevice(err error) { l.dev.fail(err) }

// end makes post and call fail from now on, and runs what came before.
func (l *Shard) End() {
	l.mu.Lock()
	l.ended = true
	l.over.Store(true)
	l.mu.Unlock()
	for l.Pending() {
		l.Work()
	}
}
