// Package core is the part that the two kinds of device share: the objects of the verbs, connections, and the shard of
// each worker with its mailbox. It depends on neither AF_XDP nor sockets: a driver starts connections and listens.
package core

import (
	"context"
	"fmt"
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

// Options configure a device of either kind.
type Options struct {
	// MPA configures every connection that has no configuration of its own. Its zero value is the usual one.
	MPA verbs.MPAConfig
	// Policy, if set, replaces MPA for each peer.
	Policy Policy
	// Override limits what a connection's own configuration may change. Nil means no limit.
	Override Override
	// Peers limits the connections of each peer, over all devices that share it. Nil means default limits for this
	// device alone.
	Peers *budget.Peers
	// Keepalive configures when silent peers are probed, and when their connections end. Zero fields mean those of
	// DefaultKeepalive.
	Keepalive Keepalive
	// Window is the maximum number of bytes that a peer may have in flight to this end. Zero means
	// iwarp.DefaultWindow.
	Window int
	// StartupTimeout is the time for the MPA exchange. Zero means iwarp.DefaultStartupTimeout.
	StartupTimeout time.Duration
	// FirstFPDUTimeout is how long a responder waits for the first FPDU of the initiator. Zero means
	// iwarp.DefaultFirstFPDUTimeout.
	FirstFPDUTimeout time.Duration
	// FPDUTimeout is how long received bytes may wait for the rest of their FPDU, or for lost bytes before them. Zero
	// means iwarp.DefaultFPDUTimeout.
	FPDUTimeout time.Duration
	// CloseTimeout is the time for a Terminate or FIN exchange. Zero means iwarp.DefaultCloseTimeout.
	CloseTimeout time.Duration
	// Stall is how long one turn of a worker may last before the watchdog reports it. Zero means DefaultStall,
	// tick.Forever no watchdog.
	Stall time.Duration
	// DSCP is the class of the packets of connections and listeners without their own, 0 to 63.
	DSCP int
	// HopLimit is the TTL or hop limit of packets, 1 to 255. Zero means 64 with the engine's own TCP, and the host's
	// default on sockets.
	HopLimit int
	// NoPack sends one FPDU per segment even if several small ones would fit.
	NoPack bool
	// MapPort, if set, is called before each attempt to connect from local. It returns the address at which the
	// listener of remote accepts RDMA, and may block until ctx is done. Devices on sockets do not call it, because
	// their port is not known yet.
	MapPort func(ctx context.Context, local, remote netip.AddrPort) netip.AddrPort
	// Log receives one line per connection event. Nil means no log.
	Log *slog.Logger
}

// Check returns an error for a value out of range.
func (o *Options) Check() error {
	if o.HopLimit < 0 || o.HopLimit > 255 {
		return fmt.Errorf("%w: hop limit %d, want 1 to 255, or 0 for the default", verbs.ErrInvalid,
			o.HopLimit)
	}
	return verbs.CheckDSCP(o.DSCP)
}

// driver is one kind of device: it starts connections and listens.
type driver interface {
	// Start begins the active connection c. It runs on any goroutine.
	Start(ctx context.Context, c *Conn, local, remote netip.AddrPort) error
	Listen(l *Listener) (at netip.AddrPort, stop io.Closer, err error)
	Detach() error
	Do(f func() error) error
	Describe() verbs.DeviceMode
	Resolve(ctx context.Context, dst netip.Addr) error // see Device.Resolve
	Footprint(accepted bool) int                       // bytes of a connection, see Device.Footprint
	Close() error
}

// Device implements verbs.Device. Its methods may be called from any goroutine.
type Device struct {
	opt       Options
	log       *slog.Logger
	drv       driver
	shards    []*Shard
	fallbacks peerFallbacks
	contained contained
	final     atomic.Pointer[Totals] // totals at the end, set by Close

	failing   sync.Once
	failed    chan struct{}
	failure   error
	closing   chan struct{} // closed by Close
	closeDone atomic.Bool   // Close is done: there are no more completions
	ended     chan struct{} // closed when closeDone is set

	mu        sync.Mutex
	closed    bool
	listeners map[io.Closer]bool // the open listeners
	relays    []*Shard           // workers without connections
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

// addShard adds the shard of a worker that has connections.
func (d *Device) addShard(s *Shard) {
	s.dev, s.index = d, len(d.shards)
	s.table.OnFault = d.regionLost
	d.shards = append(d.shards, s)
}

// addRelay adds the shard of a worker that has no connections.
func (d *Device) addRelay(s *Shard) {
	s.dev = d
	d.mu.Lock()
	d.relays = append(d.relays, s)
	d.mu.Unlock()
}

// Workers returns the number of workers that have connections.
func (d *Device) Workers() int { return len(d.shards) }

// allShards returns the shards of all workers.
func (d *Device) allShards() []*Shard {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(d.shards[:len(d.shards):len(d.shards)], d.relays...)
}

// Transport implements verbs.Device.
func (d *Device) Transport() verbs.Transport {
	m := d.drv.Describe()
	// JSON documents have empty lists, not null.
	m.Members, m.Senders = append([]string{}, m.Members...), append([]string{}, m.Senders...)
	return verbs.Transport{DeviceMode: m}
}

// Resolve waits until the next hop to dst answers ARP or neighbour discovery. It fails with the context's cause, and at
// once when there is no route. A device on sockets returns nil at once: the kernel resolves.
func (d *Device) Resolve(ctx context.Context, dst netip.Addr) error {
	return d.drv.Resolve(ctx, dst)
}

// Do runs f on a thread in the device's network namespace, so that f makes its sockets there.
func (d *Device) Do(f func() error) error { return d.drv.Do(f) }

// Detach detaches the XDP program from the interface, so that the host's kernel gets all frames again. If other devices
// share the program, it only removes the claims of this device. The rest of the device is unchanged. It does not wait
// for any worker.
func (d *Device) Detach() error { return d.drv.Detach() }

// Close resets every connection and releases the ports. If no other device shares them, it also detaches the XDP
// program and releases the queues. Calls that wait, and later calls that need a worker, fail with net.ErrClosed. Totals
// then returns the final totals.
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
	d.closeDone.Store(true)
	close(d.ended)
	return err
}

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// addListener registers an open listener, so that Close closes it. On a closed device it closes l and fails.
func (d *Device) addListener(l io.Closer) error {
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

// removeListener undoes addListener when l is closed.
func (d *Device) removeListener(l io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, l)
}

// Footprint returns the maximum number of bytes that this process allocates for a queue pair and its connection. The
// memory that all connections of a worker share is not included: frames, and the pool for bytes out of order.
func (d *Device) Footprint(cfg *verbs.QPConfig) int {
	core := rdmap.Config{
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth, MaxSGE: cfg.MaxSGE,
		MaxInline: cfg.MaxInline, MaxIRD: cfg.IRD, MaxORD: cfg.ORD,
	}
	list := cfg.MaxSGE * int(unsafe.Sizeof(verbs.SGE{}))
	sends, recvs := slots(cfg.SendDepth), slots(cfg.RecvDepth)
	posted := rdmap.Allocated(sends*int(unsafe.Sizeof(rdmap.SendWR{}))) +
		sends*(rdmap.Allocated(list)+rdmap.Allocated(cfg.MaxInline)) +
		rdmap.Allocated(recvs*int(unsafe.Sizeof(rdmap.RecvWR{}))) + recvs*rdmap.Allocated(list)
	return core.Footprint() + posted + int(unsafe.Sizeof(QP{})) + d.drv.Footprint(true)
}

// ConnFootprint returns the maximum number of bytes of a connection before it has a queue pair.
func (d *Device) ConnFootprint() int { return d.drv.Footprint(false) }
