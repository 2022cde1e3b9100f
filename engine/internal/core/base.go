package core

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/netip"

	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
)

// Base is a device as its driver sees it.
type Base struct{ dev *Device }

// NewBase makes a device that has no driver yet. Start completes it.
func NewBase(o Options) Base { return Base{newDevice(o)} }

// Start gives the device its driver.
func (b Base) Start(drv driver) *Device {
	b.dev.drv = drv
	return b.dev
}

// Options returns the device's options, with the defaults filled in. They are read-only.
func (b Base) Options() *Options { return &b.dev.opt }

// Log returns the device's logger.
func (b Base) Log() *slog.Logger { return b.dev.log }

// AddShard adds the shard of a worker that has connections.
func (b Base) AddShard(s *Shard) { b.dev.addShard(s) }

// AddRelay adds the shard of a worker that has no connections.
func (b Base) AddRelay(s *Shard) { b.dev.addRelay(s) }

// Failed returns a channel that is closed when the device has failed.
func (b Base) Failed() <-chan struct{} { return b.dev.failed }

// Closing returns a channel that is closed when Close of the device begins.
func (b Base) Closing() <-chan struct{} { return b.dev.closing }

// IsClosed reports whether Close of the device was called.
func (b Base) IsClosed() bool { return b.dev.isClosed() }

// IsFinal reports whether the device has its final totals: the workers have ended.
func (b Base) IsFinal() bool { return b.dev.final.Load() != nil }

// AddListener registers l, so that Close of the device closes it. On a closed device it closes l and fails.
func (b Base) AddListener(l interface{ Close() error }) error { return b.dev.addListener(l) }

// RemoveListener undoes AddListener when l is closed.
func (b Base) RemoveListener(l interface{ Close() error }) { b.dev.removeListener(l) }

// WatchLoop runs the watchdog of the workers until the device is closed.
func (b Base) WatchLoop() { b.dev.watchLoop() }

// IWARPConfig returns the configuration of the iwarp.Conn of c on s. reliable is iwarp.Config.Reliable.
func (b Base) IWARPConfig(c *Conn, s *Shard, reliable bool) iwarp.Config {
	return b.dev.iwarpConfig(c, s, reliable)
}

// Initiate starts MPA as initiator on a connection that exists already, such as a byte stream; start attaches it to the
// given Conn. It returns when v is connected. It fails with the errors of Dial and of start.
func (b Base) Initiate(ctx context.Context, remote netip.AddrPort, v verbs.QP,
	private []byte, mpa *verbs.MPAConfig, start func(*Conn) error) error {
	qp, err := b.dev.qp(v)
	if err != nil {
		return err
	}
	m, err := b.dev.mpaConfig(mpa, remote.Addr())
	if err == nil {
		c := qp.newActiveConn(remote, &m, private)
		if err = start(c); err == nil {
			err = c.await(ctx)
		}
		if err != nil {
			qp.GiveUp(err)
		}
	}
	if err != nil {
		return fmt.Errorf("MPA start-up with %v: %w", remote, err)
	}
	return nil
}

// Respond returns the MPA Request that the peer sends on a connection that exists already; start attaches it to the
// given Conn. It fails with the cause of the connection's end, the context's error, and the errors of start.
func (b Base) Respond(ctx context.Context, local, remote netip.AddrPort,
	mpa *verbs.MPAConfig, start func(*Conn) error) (*verbs.ConnRequest, error) {
	l := &Listener{dev: b.dev, mpa: mpa, requests: make(chan *verbs.ConnRequest, 1),
		closed: make(chan struct{})}
	c, err := l.NewPassiveConn(local, remote)
	if err != nil {
		return nil, fmt.Errorf("MPA start-up with %v: %w", remote, err)
	}
	if err := start(c); err != nil {
		return nil, err
	}
	select {
	case r := <-l.requests:
		return r, nil
	case err := <-c.result:
		return nil, fmt.Errorf("MPA start-up with %v: %w", remote, err)
	case <-ctx.Done():
		c.call(c.abort)
		return nil, context.Cause(ctx)
	}
}

// Absent returns a closed device that has failed with the error why. A daemon uses it in place of a device that cannot
// be opened yet. Its methods behave as those of any failed device.
func Absent(t verbs.DeviceMode, why error) *Device {
	d := newDevice(Options{})
	d.drv = absent{t, why}
	d.fail(why)
	d.Close()
	return d
}

// absent is the driver of a device that Absent returned.
type absent struct {
	transport verbs.DeviceMode
	why       error
}

func (a absent) Start(context.Context, *Conn, netip.AddrPort, netip.AddrPort) error { return a.why }

func (a absent) Listen(*Listener) (at netip.AddrPort, stop io.Closer, err error) {
	return at, nil, a.why
}

func (a absent) Resolve(context.Context, netip.Addr) error { return a.why }

func (a absent) Detach() error               { return nil }
func (a absent) Do(f func() error) error     { return f() }
func (a absent) Describe() verbs.DeviceMode  { return a.transport }
func (a absent) Footprint(accepted bool) int { return 0 }
func (a absent) Close() error                { return nil }

// osRandom draws the random numbers of STags from the operating system.
type osRandom struct{}

// Uint32 implements ddp.Random.
func (osRandom) Uint32() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// RandomKey returns a random key of 128 bits.
func RandomKey() (k [16]byte) {
	rand.Read(k[:])
	return k
}

// RandomSeed returns a random seed of 64 bits.
func RandomSeed() uint64 {
	k := RandomKey()
	return binary.LittleEndian.Uint64(k[:])
}
