// Package relay joins two network interfaces by carrying frames between them, through the impairments of
// package impair.
//
// A relay runs in the middle namespace of a topology and acts as a bad cable. It receives with AF_PACKET rings, has one
// thread for both directions, and sleeps when nothing is due. Hosts whose kernel sends TCP must have topo.NoOffloads.
// Otherwise their frames have no whole checksum and may exceed the MTU.
package relay

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/tcp/tick"
)

// Direction is one way through the relay.
type Direction int

// The directions.
const (
	AToB Direction = iota
	BToA
)

// Config is the configuration of a relay. The zero value carries everything unchanged.
type Config struct {
	AB, BA impair.Config
	// Seed determines all random choices. The two directions draw different random numbers.
	Seed uint64
}

// Counters count the frames of one direction since the relay started.
type Counters struct {
	impair.Counters
	Overflow   uint64 // frames that the kernel dropped because the relay was slower than the sender
	Truncated  uint64 // frames above the MTU, dropped; they mean that the sending kernel has segmentation offload on
	Unfinished uint64 // frames without a whole checksum; they mean that the sending kernel has checksum offload on
	SendErrors uint64 // frames that the outgoing interface refused
}

// Relay carries frames until it is closed. Its methods may be called by several goroutines.
type Relay struct {
	mu    sync.Mutex // guards paths, ends, pool, wake and stop
	paths [2]*impair.Path
	ends  [2]*end // frames of direction d arrive at ends[d]
	pool  *impair.Pool
	start time.Time

	wake    int           // eventfd that ends the loop's sleep; -1 when closed
	stop    bool          // Close was called
	stopped chan struct{} // closed when forwardLoop has ended
	err     error         // the failure of forwardLoop; valid when stopped is closed
}

// Start starts a relay between the two links of a topology's middle namespace m. The caller closes the relay before the
// topology.
func Start(m *topo.Middle, cfg Config) (*Relay, error) {
	if m == nil {
		return nil, errors.New("relay: the topology has no middle namespace: make it with " +
			"Options.Relay")
	}
	r := &Relay{stopped: make(chan struct{}), start: time.Now(), wake: -1}
	err := r.makePaths(m, cfg)
	if err == nil {
		err = r.openSockets(m)
	}
	if err != nil {
		r.closeSockets()
		return nil, err
	}
	go r.forwardLoop()
	return r, nil
}

// makePaths makes the paths of both directions, and the pool of their frames.
func (r *Relay) makePaths(m *topo.Middle, cfg Config) (err error) {
	mtu := min(m.ToA.MTU, m.ToB.MTU)
	r.pool = impair.NewPool(max(m.ToA.MTU, m.ToB.MTU) + impair.FrameOverhead)
	for d, c := range []impair.Config{cfg.AB, cfg.BA} {
		// The seed of a path differs for each Seed below 1<<63 and each direction. Paths with neighbouring seeds draw
		// unrelated random numbers.
		seed := cfg.Seed*2 + uint64(d)
		r.paths[d], err = impair.New(c, impair.Options{Seed: seed, LinkMTU: mtu, Pool: r.pool})
		if err != nil {
			return fmt.Errorf("relay: direction %d: %w", d, err)
		}
	}
	return nil
}

func (r *Relay) openSockets(m *topo.Middle) (err error) {
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("relay: eventfd: %w", err)
	}
	return m.Do(func() error {
		for i, l := range []topo.Link{m.ToA, m.ToB} {
			if r.ends[i], err = openEnd(l.Index, l.MTU); err != nil {
				return fmt.Errorf("relay: %s: %w", l.Name, err)
			}
		}
		return nil
	})
}

// Set changes the impairments of direction d, as impair.Path.Set does.
func (r *Relay) Set(d Direction, cfg impair.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.paths[d].Set(cfg)
	r.notify()
	return err
}

// Counters returns the counters of direction d.
func (r *Relay) Counters(d Direction) Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, out := r.ends[d], r.ends[1-d]
	in.readDrops()
	return Counters{
		Counters: r.paths[d].Counters(), Overflow: in.overflow, Truncated: in.truncated,
		Unfinished: in.unfinished,
		SendErrors: out.sendErrors,
	}
}

// Close stops the relay and returns the error with which it failed, nil for none. Frames inside are lost. Counters may
// still be called.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.stop = true
	r.notify()
	r.mu.Unlock()
	<-r.stopped
	return r.err
}

// notify ends the loop's sleep; the caller holds mu.
func (r *Relay) notify() {
	if r.wake >= 0 {
		unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// closeSockets closes the sockets of both ends and the eventfd.
func (r *Relay) closeSockets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ends {
		if e != nil {
			e.close()
		}
	}
	if r.wake >= 0 {
		unix.Close(r.wake)
		r.wake = -1
	}
}

// forwardLoop forwards frames until Close. It lowers the thread's timer slack from 50 us to the minimum, so that frames
// leave on time.
func (r *Relay) forwardLoop() {
	runtime.LockOSThread() // never unlocked: the thread ends with the loop, its timer slack with it
	defer close(r.stopped)
	defer r.closeSockets()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for {
		moved, deadline, stop := r.forwardOnce()
		if stop {
			return
		}
		if moved {
			continue
		}
		if err := r.sleep(deadline); err != nil {
			r.err = fmt.Errorf("relay: waiting for frames: %w", err)
			return
		}
	}
}

func (r *Relay) now() tick.Time { return tick.Time(time.Since(r.start)) }

// forwardOnce moves the frames that have arrived or are due. It reports whether there were any, when the next frame is
// due, and whether Close was called.
func (r *Relay) forwardOnce() (moved bool, deadline tick.Time, stop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	deadline = tick.Never
	for d, p := range r.paths {
		now := r.now()
		for range receiveBatch {
			b := r.ends[d].readFrame(r.pool)
			if b == nil {
				break
			}
			moved = true
			p.Push(b, now)
		}
		moved = r.forward(r.ends[1-d], func() *impair.Buf { return p.Pop(now) }) || moved
		moved = r.forward(r.ends[d], p.Reply) || moved
		deadline = min(deadline, p.Deadline())
	}
	return moved, deadline, r.stop
}

// forward sends the frames that next returns, until next returns nil. It reports whether there were any.
func (r *Relay) forward(to *end, next func() *impair.Buf) (moved bool) {
	for b := next(); b != nil; b = next() {
		to.send(b)
		r.pool.Put(b)
		moved = true
	}
	return moved
}

// sleep waits for a frame, a deadline or notify.
func (r *Relay) sleep(deadline tick.Time) error {
	fds := []unix.PollFd{
		{Fd: int32(r.ends[0].fd), Events: unix.POLLIN}, {Fd: int32(r.ends[1].fd),
			Events: unix.POLLIN},
		{Fd: int32(r.wake), Events: unix.POLLIN},
	}
	var timeout *unix.Timespec
	if deadline != tick.Never {
		ts := unix.NsecToTimespec(max(0, int64(deadline.Sub(r.now()))))
		timeout = &ts
	}
	if _, err := unix.Ppoll(fds, timeout, nil); err != nil && err != unix.EINTR {
		return err
	}
	if fds[2].Revents != 0 {
		var b [8]byte
		unix.Read(r.wake, b[:])
	}
	for _, f := range fds[:2] {
		if f.Revents&unix.POLLERR == 0 {
			continue
		}
		// A link that went down reports ENETDOWN once and works again when it comes back.
		if e, err := unix.GetsockoptInt(int(f.Fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil &&
			e != 0 && unix.Errno(e) != unix.ENETDOWN {
			return unix.Errno(e)
		}
	}
	return nil
}
