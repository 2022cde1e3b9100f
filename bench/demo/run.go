// Package demo is xwarp demo: two hosts in network namespaces with an engine each. It moves data by every verb and
// compares each byte.
//
//	A: source ── RDMA Write ──► B: target        SHA-256 of both
//	A: sink   ◄── RDMA Read ─── B: target        SHA-256 of both
//	A: source ── Send ────────► B: inbox         SHA-256 of both
//
// The path between the hosts is real: veth, eBPF, AF_XDP, and with impairments a relay in a third namespace that
// damages the frames.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"xwarp/bench/endpoint"
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// busyThreads is the number of threads that want a processor each: the two workers and the relay. With fewer
// processors a spinning worker delays the relay until the worker's time slice is over, about 3 ms in each round trip.
const busyThreads = 3

// port is where B listens.
const port = 7174

// run is one demo under way.
type run struct {
	cfg      Config
	each     int64 // bytes of one work request
	requests int
	net      *topo.Net
	relay    *relay.Relay
	cap      *captured
	a, b     *end
	res      *Result
}

// ErrTimeout is wrapped when Config.Timeout was too short.
var ErrTimeout = errors.New("not done")

// Run makes the hosts, moves the data and removes the hosts, also when it fails or ctx ends. The result is never nil;
// after an error it holds the values up to then.
func Run(ctx context.Context, cfg Config) (res *Result, err error) {
	res = &Result{Schema: Schema, Command: "demo", Seed: cfg.Seed, Verbs: []Transfer{}}
	defer func() {
		res.OK = err == nil
		if err != nil {
			res.Error = err.Error()
		}
	}()
	if err := cfg.Complete(); err != nil {
		return res, err
	}
	r := &run{cfg: cfg, res: res, each: cfg.requestLen()}
	r.requests = int((cfg.Size + r.each - 1) / r.each)
	r.describe()
	tooLong := fmt.Errorf("%w within %v (see --timeout)", ErrTimeout, cfg.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, tooLong)
	defer cancel()
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.setUp(); err != nil {
		return res, err
	}
	return res, r.transfer(ctx)
}

func (r *run) describe() {
	r.res.Bytes, r.res.MTU, r.res.IPVersion = r.cfg.Size, r.cfg.MTU, 4
	if r.cfg.IPv6 {
		r.res.IPVersion = 6
	}
	if r.cfg.Any() {
		i := r.cfg.Impairments
		r.res.Impairments = &i
	}
}

// setUp makes the topology and an engine on each host.
func (r *run) setUp() (err error) {
	o := topo.Options{Relay: r.cfg.Any(), MTU: r.cfg.MTU, IPv4Only: !r.cfg.IPv6,
		IPv6Only: r.cfg.IPv6}
	if r.net, err = topo.New(o); err != nil {
		return err
	}
	if o.Relay {
		if r.relay, err = startRelay(r.net, &r.cfg); err != nil {
			return err
		}
	}
	cfg := xdp.Config{}
	cfg.Log = r.cfg.Log
	if o.Relay && runtime.NumCPU() < busyThreads {
		cfg.Idle = xdp.IdleSleep
	}
	cfg.MPA = verbs.MPAWith(r.cfg.Markers, r.cfg.CRC)
	var forA *xdp.IPsecConfig
	if r.cfg.IPsec {
		a, b := r.addresses()
		secret := rand.Text()
		forA, cfg.IPsec = endpoint.Protect(secret, a, b, 128), endpoint.Protect(secret, b, a, 128)
	}
	r.b = &end{name: "B", host: r.net.B}
	if err := r.b.open(cfg); err != nil {
		return err
	}
	if r.cfg.Capture != "" {
		if r.cap, err = newCapture(r.cfg.Capture); err != nil {
			return err
		}
		cfg.Wrap = func(_ int, p ring.Port) (ring.Port, error) { return r.cap.wrap(p) }
	}
	cfg.IPsec = forA
	r.a = &end{name: "A", host: r.net.A}
	if err := r.a.open(cfg); err != nil {
		return err
	}
	if err := r.a.prepare(r.cfg.Size, 1, 0, verbs.LocalWrite); err != nil {
		return err
	}
	if err := r.b.prepare(r.cfg.Size, r.requests,
		verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead, verbs.LocalWrite); err != nil {
		return err
	}
	return r.postReceives()
}

// addresses returns the addresses of A and B in the address family of the run.
func (r *run) addresses() (a, b netip.Addr) {
	if r.cfg.IPv6 {
		return r.net.A.Addr6.Addr(), r.net.B.Addr6.Addr()
	}
	return r.net.A.Addr4.Addr(), r.net.B.Addr4.Addr()
}

// connectEnds joins the two queue pairs.
func (r *run) connectEnds(ctx context.Context) error {
	_, addr := r.addresses()
	l, err := r.b.dev.Listen(netip.AddrPortFrom(addr, port), verbs.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	accepted := make(chan error, 1)
	go func() {
		err := r.b.Accept(ctx, l, nil)
		if err != nil {
			cancel(err)
		}
		accepted <- err
	}()
	if err := r.a.Dial(ctx, l.Addr(), verbs.DialConfig{}); err != nil {
		cancel(err)
		<-accepted
		return err
	}
	if err := <-accepted; err != nil {
		return err
	}
	return r.agreed()
}

// agreed adds the negotiated parameters of the connection to the result. It fails if markers or CRC differ from the
// configuration.
func (r *run) agreed() error {
	p, q := r.a.QP.Params(), r.b.QP.Params()
	m := &r.res.MPA
	m.Revision = int(p.Revision)
	m.Markers = p.Send.Markers && p.Receive.Markers && q.Send.Markers && q.Receive.Markers
	m.CRC = p.Send.CRC && p.Receive.CRC
	for _, e := range []struct {
		end *end
		res *End
	}{{r.a, &r.res.A}, {r.b, &r.res.B}} {
		t := e.end.dev.Transport()
		*e.res = End{Address: e.end.QP.LocalAddr().String(), XDPMode: t.XDPMode, Copy: t.Copy}
	}
	if m.Markers != r.cfg.Markers || m.CRC != r.cfg.CRC {
		return fmt.Errorf("MPA agreed on markers %v and CRC %v, want %v and %v", m.Markers, m.CRC,
			r.cfg.Markers, r.cfg.CRC)
	}
	return nil
}

// transfer connects, runs the verbs and closes the connection.
func (r *run) transfer(ctx context.Context) error {
	fill(r.a.buffers[source].Bytes(), r.cfg.Seed)
	if err := r.connectEnds(ctx); err != nil {
		return r.explain(err)
	}
	for _, v := range []struct {
		name     string
		move     func(context.Context) error
		src, dst []byte
	}{
		{nameWrite, r.write, r.a.buffers[source].Bytes(), r.b.buffers[target].Bytes()},
		{nameRead, r.read, r.b.buffers[target].Bytes(), r.a.buffers[sink].Bytes()},
		{nameSend, r.sendMessage, r.a.buffers[source].Bytes(), r.b.buffers[inbox].Bytes()},
	} {
		if err := r.timed(ctx, v.name, v.move, v.src, v.dst); err != nil {
			return r.explain(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(r.closeConnection(ctx), r.inspect())
}

// explain copies the counters of both ends into the result. It adds the progress of both ends to err if that is a
// timeout.
func (r *run) explain(err error) error {
	r.snapshot()
	if errors.Is(err, ErrTimeout) {
		return fmt.Errorf("%w\n  %s\n  %s", err, r.a.progress(), r.b.progress())
	}
	return err
}

// snapshot copies the counters of both ends and of the relay into the result. Without a connection it changes nothing.
func (r *run) snapshot() {
	a, errA := r.a.QP.Info()
	b, errB := r.b.QP.Info()
	if errA != nil || errB != nil {
		return // not connected, or closed: the counters of the last snapshot stay
	}
	r.res.AToB, r.res.BToA = direction(&a, &b), direction(&b, &a)
	if r.relay != nil {
		r.res.AToB.Relay = relayed(r.relay, relay.AToB)
		r.res.BToA.Relay = relayed(r.relay, relay.BToA)
	}
}

// closeConnection closes gracefully, so that a capture shows the end of the connection too.
func (r *run) closeConnection(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, closeTimeout,
		fmt.Errorf("the connection did not close within %v", closeTimeout))
	defer cancel()
	for _, e := range []*end{r.a, r.b} {
		if err := e.Disconnect(ctx); err != nil {
			return fmt.Errorf("host %s: close: %w", e.name, err)
		}
	}
	return nil
}

// closeTimeout bounds the close of each end. The engine's own timeout is shorter, so that its error is reported first.
const closeTimeout = 20 * time.Second

// close removes everything, dependents first.
func (r *run) close() error {
	errs := []error{r.a.close(), r.b.close()}
	if r.cap != nil {
		c, err := r.cap.close()
		r.res.Capture = c
		errs = append(errs, err)
	}
	if r.relay != nil {
		errs = append(errs, r.relay.Close())
	}
	if r.net != nil {
		errs = append(errs, r.net.Close())
	}
	return errors.Join(errs...)
}

// startRelay starts the relay with the same impairments in both directions.
func startRelay(net *topo.Net, cfg *Config) (*relay.Relay, error) {
	c := impair.Config{
		Loss: cfg.Loss, Reorder: cfg.Reorder, Duplicate: cfg.Duplicate, Corrupt: cfg.Corrupt,
		CorruptMode: impair.CorruptSealed, Resegment: cfg.Resegment,
	}
	return relay.Start(net.Relay, relay.Config{AB: c, BA: c, Seed: cfg.Seed})
}

// relayed returns the relay's counters of direction d. Overflow includes all frames that were dropped unintentionally.
func relayed(r *relay.Relay, d relay.Direction) *Relay {
	c := r.Counters(d)
	return &Relay{
		In: c.In, Out: c.Out, Lost: c.Lost, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted,
		RecutIn:   c.RecutIn, RecutOut: c.RecutOut,
		Overflow: c.Overflow + c.QueueDropped + c.Truncated + c.SendErrors,
	}
}
