// Package core is what the two kinds of device share: the objects of the verbs, connections, and the mailbox through
// which a worker is reached. It knows neither AF_XDP nor sockets: a Driver starts connections and listens.
package core

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/verbs"
)

// Options are what both transports have in common. Zero fields mean defaults.
type Options struct {
	MPA      verbs.MPAConfig // for every connection, unless its own configuration says otherwise
	Policy   Policy          // decides for each peer instead of MPA; nil for none
	Override Override        // bounds what a connection's own configuration can change; nil: everything
	// counts what each peer has, for all devices that share it; nil: the device's own, with defaults
	Peers          *budget.Peers
	Keepalive      Keepalive     // asks silent peers whether they are still there
	Window         int           // octets that a peer may have under way towards us
	StartupTimeout time.Duration // of the MPA exchange
	// FirstFPDUTimeout is how long a responder waits for an initiator whose consumer has to send first;
	// negative: for ever.
	FirstFPDUTimeout time.Duration
	// FPDUTimeout is how long octets that came may wait for the rest of their FPDU, or for what was lost before
	// them; negative: for ever.
	FPDUTimeout  time.Duration
	CloseTimeout time.Duration // of a Terminate or FIN exchange
	// of a worker's turn: the watchdog says then that it stands still; 0: DefaultStall, negative: no watchdog
	Stall  time.Duration
	NoPack bool // one FPDU per segment also when several small ones would fit
	// MapPort, when set, says before each attempt to connect from local where the listener at remote really
	// listens; it may wait until ctx is done. Devices on the kernel's sockets, which know their port too late, do not
	// ask.
	MapPort func(ctx context.Context, local, remote netip.AddrPort) netip.AddrPort
	Log     *slog.Logger // one line per connection event; nil is silent
}

// driver is a transport: it starts connections and listens.
type driver interface {
	// start begins an active connection whose handler is c. It runs on any goroutine.
	Start(ctx context.Context, c *Conn, local, remote netip.AddrPort) error
	Listen(l *Listener) (at netip.AddrPort, stop io.Closer, err error)
	Detach() error
	Do(f func() error) error
	Describe() verbs.Transport
	Resolve(ctx context.Context, dst netip.Addr) error // see Device.Resolve
	Footprint(accepted bool) int                       // octets of a connection, see Device.Footprint
	Close() error
}

// Device is where everything else is made. Its methods may be called from any goroutine.
type Device struct {
	opt       Options
	log       *slog.Logger
	drv       driver
	loops     []*Shard
	fallbacks peerFallbacks
	contained contained
	final     atomic.Pointer[Totals] // set when the device is closed

	failing sync.Once
	failed  chan struct{}
	failure error
	closing chan struct{} // closed by Close
	over    atomic.Bool   // Close is done: no completion comes any more
	ended   chan struct{} // closed then

	mu        sync.Mutex
	closed    bool
	listeners map[io.Closer]bool // that are open
	relays    []*Shard           // without connections, beside loops
}

func newDevice(o Options) *Device {
	if o.Peers == nil {
		o.Peers = budget.NewPeers(nil)
	}
	o.Keepalive.complete()
	d := &Device{opt: o, log: o.Log, failed: make(chan struct{}), closing: make(chan struct{}),
		ended: make(chan struct{}), listeners: map[io.Closer]bool{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d
}

// own makes l one of the device's loops.
func (d *Device) own(l *Shard) {
	l.dev, l.index = d, len(d.loops)
	l.table.OnFault = d.regionLost
	d.loops = append(d.loops, l)
}

// ownRelay makes l one of the device's loops that have no connections.
func (d *Device) ownRelay(l *Shard) {
	l.dev = d
	d.mu.Lock()
	d.relays = append(d.relays, l)
	d.mu.Unlock()
}

// Workers returns the number of workers that have connections.
func (d *Device) Workers() int { return len(d.loops) }

// all returns the loops of all workers.
func (d *Device) all() []*Shard {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(d.loops[:len(d.loops):len(d.loops)], d.relays...)
}

// Transport implements verbs.Device.
func (d *Device) Transport() verbs.Transport { return d.drv.Describe() }

// Resolve returns nil once the next hop towards dst answers ARP or neighbour discovery, and the context's cause when it
// does not until then. An error of the routes ends it at once. A device on sockets leaves all of that to the kernel.
func (d *Device) Resolve(ctx context.Context, dst netip.Addr) error {
	return d.drv.Resolve(ctx, dst)
}

// Do runs f on a thread that is in the device's network namespace, where sockets of f belong.
func (d *Device) Do(f func() error) error { return d.drv.Do(f) }

// Detach takes the program off the interface, so that the host has all frames again; the rest of the device
// stays as it is. It waits for no worker.
func (d *Device) Detach() error { return d.drv.Detach() }

// Close ends every connection with RST, takes the program off the interface and gives ports and queues back. What
// waits fails with net.ErrClosed, and so does what is called later.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		<-d.ended
		return nil
	}
	d.closed = true
	open := slices.Collect(maps.Keys(d.listeners))
	d.mu.Unlock()
	close(d.closing)
	for _, l := range open {
		l.Close()
	}
	err := d.drv.Close()
	d.closeTotals()
	d.over.Store(true)
	close(d.ended)
	return err
}

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// opened has Close close a listener that is open now; it fails on a closed device.
func (d *Device) opened(l io.Closer) error {
	d.mu.Lock()
	if !d.closed {
		d.listeners[l] = true
		d.mu.Unlock()
		return nil
	}
	d.mu.Unlock()
	l.Close()
	return verbs.ErrClosed
}

// forget is for a listener that is being closed.
func (d *Device) forget(l io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, l)
}

// Footprint returns the octets that this process allocates at most for a queue pair and its connection,
// without what all connections of a worker share: frames, and the pool for octets out of order.
func (d *Device) Footprint(cfg *verbs.QPConfig) int {
	core := rdmap.Config{
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth, MaxSGE: cfg.MaxSGE,
		MaxInline: cfg.MaxInline, MaxIRD: cfg.IRD, MaxORD: cfg.ORD,
	}
	list := cfg.MaxSGE * int(unsafe.Sizeof(verbs.SGE{}))
	sends, recvs := slots(cfg.SendDepth), slots(cfg.RecvDepth)
	posted := rdmap.Allocated(sends*int(unsafe.Sizeof(postedSend{}))) +
		sends*(rdmap.Allocated(list)+rdmap.Allocated(cfg.MaxInline)) +
		rdmap.Allocated(recvs*int(unsafe.Sizeof(postedRecv{}))) + recvs*rdmap.Allocated(list)
	return core.Footprint() + posted + int(unsafe.Sizeof(QP{})) + d.drv.Footprint(true)
}

// ConnFootprint is what a connection takes before it has a queue pair.
func (d *Device) ConnFootprint() int { return d.drv.Footprint(false) }
