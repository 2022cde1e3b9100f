// Package engine is iWARP with verbs: devices, memory regions, queue pairs, completion queues and connections, over
// AF_XDP with the engine's own TCP, or over the kernel's sockets.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp/tick"
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
	CloseTimeout     time.Duration // of a Terminate or FIN exchange
	// of a worker's turn: the watchdog says then that it stands still; 0: DefaultStall, negative: no watchdog
	Stall  time.Duration
	NoPack bool         // one FPDU per segment also when several small ones would fit
	Log    *slog.Logger // one line per connection event; nil is silent
}

// driver is a transport: it starts connections and listens.
type driver interface {
	// start begins an active connection whose handler is c. It runs on any goroutine.
	start(c *conn, local, remote netip.AddrPort) error
	listen(l *Listener) (netip.AddrPort, error)
	unlisten(l *Listener)
	detach() error
	describe() verbs.Transport
	footprint(accepted bool) int // octets of a connection, see Device.Footprint
	close() error
}

// Device is where everything else is made. Its methods may be called from any goroutine.
type Device struct {
	opt       Options
	log       *slog.Logger
	drv       driver
	loops     []*loop
	verdicts  verdicts
	contained contained
	final     atomic.Pointer[Totals] // set when the device is closed

	failing sync.Once
	failed  chan struct{}
	failure error
	closing chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
}

func newDevice(o Options) *Device {
	if o.Peers == nil {
		o.Peers = budget.NewPeers(nil)
	}
	o.Keepalive.complete()
	d := &Device{opt: o, log: o.Log, failed: make(chan struct{}), closing: make(chan struct{})}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d
}

// Transport implements verbs.Device.
func (d *Device) Transport() verbs.Transport { return d.drv.describe() }

// Detach takes the program off the interface, so that the host has all frames again; the rest of the device
// stays as it is. It waits for no worker.
func (d *Device) Detach() error { return d.drv.detach() }

// Close ends every connection with RST, takes the program off the interface and gives ports and queues back.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	close(d.closing)
	err := d.drv.close()
	d.closeTotals()
	return err
}

// Dial implements verbs.Device.
func (d *Device) Dial(ctx context.Context, remote netip.AddrPort, qp verbs.QP,
	cfg verbs.ConnConfig) error {
	q, err := d.qp(qp)
	if err == nil {
		err = d.dial(ctx, remote, q, &cfg)
	}
	return verbs.Wrap(fmt.Sprintf("rdma_connect to %v", remote), err)
}

// qp returns the engine's own of a queue pair.
func (d *Device) qp(qp verbs.QP) (*QP, error) {
	if q, _ := qp.(*QP); q != nil && q.dev == d {
		return q, nil
	}
	return nil, verbs.ErrForeign
}

func (d *Device) dial(ctx context.Context, remote netip.AddrPort, q *QP,
	cfg *verbs.ConnConfig) error {
	m, err := d.mpaConfig(cfg, remote.Addr())
	if err != nil {
		return err
	}
	hold, err := d.opt.Peers.Dial(remote.Addr(), clock())
	if err != nil {
		return denied(err)
	}
	if err := d.dialAgain(ctx, remote, q, cfg, &m); err != nil {
		hold.End(clock())
		return err
	}
	q.keep(hold)
	return nil
}

// dialAgain dials, and again without what the peer refused.
func (d *Device) dialAgain(ctx context.Context, remote netip.AddrPort, qp *QP,
	cfg *verbs.ConnConfig, m *verbs.MPAConfig) error {
	d.verdicts.apply(remote, m, clock())
	guess := startup.RetryNone // what a rejection may have meant
	for attempt := 0; ; attempt++ {
		c, err := d.dialOnce(ctx, remote, qp, cfg, m)
		switch {
		case err == nil:
			if guess != startup.RetryNone {
				d.verdicts.learn(remote, guess, clock())
			}
			return nil
		case errors.Is(err, verbs.ErrHasConn): // which it does no harm
			return err
		}
		if c == nil || m.NoRetry || attempt == maxAttempts || ctx.Err() != nil {
			qp.abandon(err)
			return err
		}
		switch c.retry {
		case startup.RetryRevision1:
			m.Revision1 = true
		case startup.RetryNoMarkers:
			m.NoMarkers = true
		default:
			qp.abandon(err)
			return err
		}
		if errors.Is(err, verbs.ErrRejected) {
			guess = c.retry // or its consumer said no: the next attempt shows which
		} else {
			d.verdicts.learn(remote, c.retry, clock())
		}
		d.log.Info("trying again", "remote", remote, "without", c.retry, "because", err)
	}
}

// maxAttempts is how often Dial tries again: once without markers, once without revision 2.
const maxAttempts = 2

func (d *Device) dialOnce(ctx context.Context, remote netip.AddrPort, qp *QP, cfg *verbs.ConnConfig,
	m *verbs.MPAConfig) (*conn, error) {
	c := &conn{dev: d, qp: qp, result: make(chan error, 1)}
	c.remote = remote
	c.mpa = *m
	c.startup = initiator(m, cfg.PrivateData, qp.cfg.IRD, qp.cfg.ORD)
	if err := d.drv.start(c, cfg.Local, remote); err != nil {
		return nil, err
	}
	select {
	case err := <-c.result:
		return c, err
	case <-ctx.Done():
		c.call(c.abort)
		return nil, context.Cause(ctx)
	}
}

// iwarpConfig is the configuration of c's iwarp.Conn on loop l.
func (d *Device) iwarpConfig(c *conn, l *loop, reliable bool) iwarp.Config {
	s := iwarp.Config{
		Responder: c.listener != nil, Startup: c.startup, Pool: l.pool, Handler: c,
		Pack:     !d.opt.NoPack,
		Reliable: reliable, AnyCRCError: c.mpa.AnyCRCError, Window: d.opt.Window,
		StartupTimeout:   tick.Duration(d.opt.StartupTimeout),
		FirstFPDUTimeout: tick.Duration(d.opt.FirstFPDUTimeout),
		CloseTimeout:     tick.Duration(d.opt.CloseTimeout),
	}
	if c.qp != nil {
		s.QP = &c.qp.core
	}
	return s
}
