package xdp

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/ring"
	"xwarp/ring/live"
)

// askDriverEvery is the interval at which a device with TransmitLive checks that its driver accepts live frames. After
// the driver has stopped accepting them, frames are lost for at most this time.
const askDriverEvery = 200 * time.Millisecond

// The program and package live have slots of the same size.
var _ = [1]struct{}{}[int(unsafe.Sizeof(live.Slot{}))-bpf.LiveSlotSize]

// maxLiveMTU is the maximum IP packet of a live frame, after an Ethernet header.
const maxLiveMTU = live.Room - 14

// liveFrames is the state that the queues of a device with TransmitLive share.
type liveFrames struct {
	on   atomic.Bool // the driver accepts live frames now
	stop chan struct{}
	done chan struct{}
}

// liveWorkers returns the number of workers with live frames: the configured queues, or those that the interface has
// now or will have with a program attached.
func (c *Config) liveWorkers(link int) int {
	switch {
	case c.Transmit != TransmitLive:
		return 0
	case len(c.Queues) > 0:
		return len(c.Queues)
	}
	return min(max(ethtool.ReceiveQueues(link, c.Interface, bpf.DefaultMaxQueues),
		runtime.NumCPU()), ring.MaxQueues)
}

// framesPerRun returns the best number of frames for one call of a port; 0: no preference.
func (c *Config) framesPerRun() int {
	if c.Transmit == TransmitLive {
		return live.BestRun
	}
	return 0
}

// livePort adds live frames to the socket of the i-th queue.
func (x *driver) livePort(sock *ring.Socket, i, link int) (ring.Port, error) {
	if i >= x.steer.LiveWorkers() {
		x.base.Log().Warn("the interface has a new queue: it sends by the slower transmit mode xdp",
			"interface", x.cfg.Interface, "queue", x.cfg.Queues[i])
		return sock, nil
	}
	m, err := x.steer.Live(link, i)
	if err != nil {
		return nil, err
	}
	if x.live == nil {
		x.live = &liveFrames{stop: make(chan struct{}), done: make(chan struct{})}
		go x.live.watchDriver(func() (d ring.Driver, err error) {
			e := x.ns.Do(func() error { d, err = ring.QueryDriver(link); return err })
			return d, e
		})
	}
	return live.Wrap(sock, live.NewProgram(m.Program, m.Worker),
		live.MemoryOf(m.Slots, m.First, m.State), &x.live.on), nil
}

// watchDriver checks until close whether the driver accepts live frames.
func (l *liveFrames) watchDriver(driver func() (ring.Driver, error)) {
	defer close(l.done)
	t := time.NewTicker(askDriverEvery)
	defer t.Stop()
	for {
		d, err := driver()
		l.on.Store(err == nil && d.Transmits)
		select {
		case <-l.stop:
			return
		case <-t.C:
		}
	}
}

func (l *liveFrames) close() {
	if l != nil {
		close(l.stop)
		<-l.done
	}
}
