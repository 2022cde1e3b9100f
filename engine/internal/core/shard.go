package core

import (
	"sync"
	"sync/atomic"
	"time"

	"xwarp/ddp"
	"xwarp/engine/fair"
	"xwarp/engine/guard"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// Epoch is the start of the engine's clock; tick.Time counts from it.
var Epoch = time.Now()

// Now returns the time of the engine's clock.
func Now() tick.Time { return tick.Time(time.Since(Epoch)) }

// Shard is the part of a device that one worker owns: its tables of memory and its queue pairs. Other goroutines reach
// the worker in two ways: by functions posted to its mailbox, and by doorbells. Of a queue pair, all but the posted
// requests belongs to exactly one shard.
type Shard struct {
	// Set before the worker starts.
	dev     *Device
	thread  Worker
	index   int              // index among the workers that have connections
	Queue   int              // receive queue of the device; -1 for none
	TCP     TCP              // the worker's own; nil on the kernel's sockets
	Serving func() tcp.Tuple // the connection that is or was served last; may be nil

	// The mailbox. Any goroutine may read hasNew and isEnded without mu.
	mu      sync.Mutex
	mail    []func() // guarded by mu
	ended   bool     // guarded by mu
	hasNew  atomic.Bool
	isEnded atomic.Bool
	rung    atomic.Pointer[Doorbell] // doorbells that were rung and are not yet in ready, as a linked stack

	// Owned by the worker.
	todo        []func() // functions taken from mail, of which todo[:done] have run
	done        int
	table       *ddp.Table
	pool        *mpa.Pool
	ready       fair.Queue[*Doorbell] // the doorbells that wait for their turn
	Common      Share                 // of byte streams, and of connections that are not established yet
	shares      map[any]*Share        // shares of the users that SetUser set
	Current     panicTarget           // the object being served, which a panic ends; nil: none
	CheckTables bool                  // after a panic the worker must check its tables
	Consuming   bool                  // the worker is in its consumer's callback

	Sums    sums // see totals.go
	watched      // see watch.go
}

// Doorbell makes the worker call Target.TakePosted once after one or more rings.
type Doorbell struct {
	Target   doorbellTarget
	rung     atomic.Bool // it is in Shard.rung
	next     *Doorbell
	queuedOn atomic.Pointer[Shard] // the shard in whose ready queue it is; nil: none
}

// doorbellTarget is a queue pair or a byte stream.
type doorbellTarget interface {
	panicTarget
	// TakePosted serves the target once, for a bounded time, and returns the number of work requests taken. It runs on
	// the worker of s.
	TakePosted(s *Shard) (taken int)
	// DoorbellClass returns the class in which the doorbell waits for its turn. It runs on the worker of s.
	DoorbellClass(s *Shard) *fair.Class[*Doorbell]
}

// Worker is the thread or goroutine of a shard.
type Worker interface {
	Wake()           // ends the worker's sleep, so that it runs posted work
	Notify(f func()) // runs f soon, which wakes goroutines and does not block. Only the worker's thread calls Notify
}

// TCP is a worker's own TCP. Only that worker calls it.
type TCP interface {
	Connections() []TCPConn
	// Totals returns the counters of all connections, including those that ended. Count brings them up to date.
	Totals() tcp.AllCounters
}

// TCPConn is a connection of TCP.
type TCPConn interface {
	Count() // adds what the counters grew by since the last Count to TCP.Totals
	Conn() *tcp.Conn
}

// NewShard returns the shard of a worker. It belongs to no device yet.
func NewShard(thread Worker) *Shard {
	return &Shard{Queue: -1, table: ddp.NewTable(osRandom{}), pool: mpa.NewPool(0, 0),
		thread: thread, Sums: newSums(), shares: map[any]*Share{}}
}

// Post makes the worker run f soon. It returns false if the worker has ended.
func (s *Shard) Post(f func()) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	s.mail = append(s.mail, f)
	s.hasNew.Store(true)
	s.mu.Unlock()
	s.thread.Wake()
	return true
}

// Notify runs f, which wakes goroutines, soon. It is called on the thread of s. Without a worker s is nil and f runs at
// once.
func (s *Shard) Notify(f func()) {
	if s == nil {
		f()
		return
	}
	s.thread.Notify(f)
}

// Call makes the worker run f, and waits until f returns. It fails with ErrClosed if the worker has ended, and with
// ErrDefect if f panicked.
func (s *Shard) Call(f func()) error { return s.CallFor(nil, f) }

// Do is Call for a function that can fail.
func (s *Shard) Do(f func() error) (err error) {
	if e := s.Call(func() { err = f() }); e != nil {
		return e
	}
	return err
}

// CallFor is Call for a function that works on p: if f panics, p ends.
func (s *Shard) CallFor(p panicTarget, f func()) error {
	done := make(chan struct{})
	err := verbs.ErrDefect
	posted := s.Post(func() {
		s.Current = p
		defer s.Notify(func() { close(done) })
		f()
		err = nil
	})
	if !posted {
		return verbs.ErrClosed
	}
	<-done
	return err
}

// RunPosted runs posted functions and serves doorbells, up to the limits of a turn. It reports whether there were any.
// Only the worker calls it.
func (s *Shard) RunPosted() bool {
	worked := false
	if s.takeMail() {
		s.EnterPlace(atMail)
		end := Now().Add(mailTime)
		for left := mailPerTurn; left > 0 && s.takeMail(); {
			s.runMail(&left, end) // once, or once more after each panic
		}
		worked = true
	}
	if s.rung.Load() != nil { // a load first: a swap in every turn of a worker that spins would cost ten times as much
		s.queueRung()
	}
	if s.ready.Len() == 0 {
		return worked
	}
	s.EnterPlace(atDoorbells)
	for left := s.requestLimits().turn; left > 0 && s.ready.Len() > 0; {
		s.serveDoorbells(&left)
	}
	return true
}

// takeMail swaps mail and todo when todo is done, and reports whether there is a function to run.
func (s *Shard) takeMail() bool {
	switch {
	case s.done < len(s.todo):
		return true
	case !s.hasNew.Load():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo, s.mail, s.done = s.mail, s.todo[:0], 0
	s.hasNew.Store(false)
	return true
}

// runMail runs posted functions, at most left of them, and sets left to 0 when end has passed. It stops at the first
// panic.
func (s *Shard) runMail(left *int, end tick.Time) {
	defer guard.Recover(s.ContainPanic)
	for *left > 0 && s.takeMail() {
		f := s.todo[s.done]
		s.todo[s.done] = nil
		s.done++
		*left--
		s.Current = nil
		if f(); Now() >= end {
			*left = 0
		}
	}
}

// queueRung moves the doorbells that were rung to the ready queue.
func (s *Shard) queueRung() {
	for b := s.rung.Swap(nil); b != nil; {
		this := b
		b, this.next = this.next, nil
		this.rung.Store(false)
		s.requeue(this)
	}
}

// serveDoorbells calls the targets of ready doorbells until left work requests are taken, and stops at the first panic.
// A doorbell counts as one request at least.
func (s *Shard) serveDoorbells(left *int) {
	defer guard.Recover(s.ContainPanic)
	for *left > 0 {
		b, ok := s.ready.Next()
		if !ok {
			return
		}
		*left-- // before TakePosted, so that a panic counts, too
		b.queuedOn.CompareAndSwap(s, nil)
		s.Current = b.Target
		*left -= max(b.Target.TakePosted(s)-1, 0)
	}
}

// HasPosted reports whether RunPosted has something to do.
func (s *Shard) HasPosted() bool {
	return s.hasNew.Load() || s.rung.Load() != nil || s.done < len(s.todo) || s.ready.Len() > 0
}

// Ring makes the worker call the target of b soon.
func (s *Shard) Ring(b *Doorbell) {
	if b.rung.Swap(true) {
		return
	}
	for {
		top := s.rung.Load()
		b.next = top
		if s.rung.CompareAndSwap(top, b) {
			break
		}
	}
	s.thread.Wake()
}

// FailDevice marks the device as failed with err.
func (s *Shard) FailDevice(err error) { s.dev.fail(err) }

// CloseMailbox makes Post and Call fail from now on, and runs everything that was posted before.
func (s *Shard) CloseMailbox() {
	s.mu.Lock()
	s.ended = true
	s.isEnded.Store(true)
	s.mu.Unlock()
	for s.HasPosted() {
		s.RunPosted()
	}
}
