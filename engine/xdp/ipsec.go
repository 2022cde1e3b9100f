package xdp

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/internal/core"
	"xwarp/engine/ipsec"
	"xwarp/engine/stack"
	"xwarp/engine/tally"
	"xwarp/tcp/ip"
)

// IPsecConfig configures the protection of connections by IPsec ESP (RFC 5044, 9.3).
type IPsecConfig struct {
	// Rules say which connections are protected: the first match applies, and without a match a connection is not
	// protected. Unprotected segments of a protected connection are dropped.
	Rules []ipsec.Rule
	// IfID and Mark identify the SAs that an IKE daemon installs for the engine: see xfrm.Options.
	IfID, Mark uint32
	// Window is the anti-replay window in packets. Zero means esp.DefaultWindow.
	Window int
	// Follow, if set, replaces xfrm.Follow in tests.
	Follow func(xfrm.Options) (xfrm.Source, error)
}

// PlainObserver observes the frames of protected connections in the form that they would have without protection.
type PlainObserver = stack.PlainObserver

// IPsecStats are the counters of IPsec on a device.
type IPsecStats struct {
	ipsec.Stats
	xfrm.Counters
	Failures uint64 // failed requests to the kernel and the IKE daemon, plus refused SAs
}

// IPsecState is the state of IPsec on a device.
type IPsecState struct {
	IPsecStats
	Waiting   []netip.Addr // hosts to which packets wait for an SA
	LastError error        // of the last failure
	LastAt    time.Time    // time of the last failure
}

// ipsecState is the IPsec state of a device, nil without IPsec. Each worker has a Manager for the pairs of hosts that
// it owns: an SA belongs to one worker, because only one may number its packets.
type ipsecState struct {
	x       *driver
	workers []*worker
	source  xfrm.Source
	closed  atomic.Bool

	mu       sync.Mutex
	managers map[*worker]*ipsec.Manager
	rules    []ipsec.Rule // those of IPsecConfig or of the last SetIPsecRules
	failures uint64
	last     error
	lastAt   time.Time
	final    ipsec.Stats // final counters, set by Close
}

// openIPsec creates x.ipsec, which newWorker uses, if IPsec is configured.
func (x *driver) openIPsec() {
	if x.cfg.IPsec != nil {
		x.ipsec = &ipsecState{x: x, managers: map[*worker]*ipsec.Manager{},
			rules: x.cfg.IPsec.Rules}
	}
}

// newManager creates the Manager of a worker, or returns nil without IPsec. The Manager of a relay owns no SA.
func (i *ipsecState) newManager(w *worker) *ipsec.Manager {
	if i == nil {
		return nil
	}
	c := i.x.cfg.IPsec
	i.mu.Lock()
	defer i.mu.Unlock()
	m := ipsec.New(ipsec.Config{Rules: i.rules, Window: c.Window, Kernel: i, Steering: i.x.claims,
		Random: core.RandomSeed, Failed: i.note, Log: i.x.base.Log(),
		Owns: func(local, remote netip.Addr) bool {
			return i.owner(core.FromNetip(local), core.FromNetip(remote)) == w
		}})
	i.managers[w] = m
	return m
}

// owner returns the worker that owns the SAs and the protected connections between two hosts.
func (i *ipsecState) owner(local, remote ip.Addr) *worker {
	hash := uint32(2166136261) // FNV-1a
	for _, a := range []ip.Addr{local, remote} {
		for _, b := range a {
			hash = (hash ^ uint32(b)) * 16777619
		}
	}
	return i.workers[hash%uint32(len(i.workers))]
}

// firstWorker returns the worker on which a connection begins.
func (x *driver) firstWorker(local, remote netip.Addr) *worker {
	if x.ipsec != nil {
		return x.ipsec.owner(core.FromNetip(local), core.FromNetip(remote))
	}
	return x.workers[0]
}

// strayOwner returns the worker that owns the connection or the SA of a stray, a frame that arrived on the queue of
// another worker. It returns nil if there is no such worker.
func (x *driver) strayOwner(s *stack.Stray) *worker {
	if s.ESP || s.ICMP != nil && s.ICMP.SPI != 0 {
		if x.ipsec == nil {
			return nil
		}
		return x.ipsec.owner(s.Tuple.Local, s.Tuple.Remote)
	}
	return x.owners.get(&s.Tuple)
}

// follow applies the rules to the steering program and starts to follow the kernel's SAs. It does nothing without
// IPsec.
func (i *ipsecState) follow(workers []*worker) (err error) {
	if i == nil {
		return nil
	}
	i.workers = workers
	c := i.x.cfg.IPsec
	if err := i.x.claims.SetProtected(ipsec.Protected(c.Rules)); err != nil {
		return err
	}
	follow := c.Follow
	if follow == nil {
		follow = func(o xfrm.Options) (xfrm.Source, error) { return xfrm.Follow(o) }
	}
	if i.source, err = follow(xfrm.Options{IfID: c.IfID, Mark: c.Mark, Notify: i.update,
		Refused: i.note, Log: i.x.base.Log()}); err != nil {
		i.source = nil
		return err
	}
	if f, ok := i.source.(*xfrm.Follower); ok {
		i.x.watches = append(i.x.watches, f.Watch())
	}
	return nil
}

// on runs f with the Manager of each worker except relays, on the worker's thread.
func (i *ipsecState) on(f func(m *ipsec.Manager)) {
	for _, w := range i.workers {
		m := i.manager(w)
		w.Post(func() { f(m) })
	}
}

func (i *ipsecState) manager(w *worker) *ipsec.Manager {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.managers[w]
}

func (i *ipsecState) update(s *xfrm.Snapshot) { i.on(func(m *ipsec.Manager) { m.Update(s) }) }

func (i *ipsecState) close() {
	if i == nil {
		return
	}
	i.closed.Store(true)
	if i.source != nil {
		i.source.Close()
	}
}

// Acquire, Expire and Account implement ipsec.Kernel. They return nil if the SA or policy is gone, and after close.

func (i *ipsecState) Acquire(p *xfrm.Policy) error { return i.unlessGone(i.source.Acquire(p)) }

func (i *ipsecState) Expire(sa *xfrm.SA, hard bool) error {
	return i.unlessGone(i.source.Expire(sa, hard))
}

func (i *ipsecState) Account(sa *xfrm.SA, packets, bytes uint64) error {
	return i.unlessGone(i.source.Account(sa, packets, bytes))
}

// unlessGone returns the error of a request, or nil if the SA is gone or the source was closed meanwhile.
func (i *ipsecState) unlessGone(err error) error {
	if errors.Is(err, unix.ESRCH) || i.closed.Load() {
		return nil
	}
	return err
}

// note records an error for IPsecState.
func (i *ipsecState) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failures++
	i.last, i.lastAt = err, time.Now()
}

// IPsec returns the state of IPsec, or nil without IPsec. It calls f as ipsec.Manager.EachSA does, on the workers.
func (d *Device) IPsec(f func(sa *xfrm.SA, in *esp.In, out *esp.Out, sending bool)) (s *IPsecState,
	err error) {
	i := d.x.ipsec
	if i == nil {
		return nil, nil
	}
	s = &IPsecState{}
	for _, w := range i.workers {
		m := i.manager(w)
		if err = w.Call(func() {
			s.Stats = tally.Join(s.Stats, m.Stats())
			m.EachSA(f)
			s.Waiting = append(s.Waiting, m.Waiting()...)
		}); err != nil {
			break
		}
	}
	s.Counters, _ = i.source.Counters()
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil && i.x.base.IsFinal() { // written after final
		s, err = &IPsecState{IPsecStats: IPsecStats{Stats: i.final, Counters: s.Counters}}, nil
	}
	s.Failures, s.LastError, s.LastAt = i.failures, i.last, i.lastAt
	return s, err
}

// keepCounters stores the final counters of the Managers. The workers must have ended.
func (i *ipsecState) keepCounters() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.final = ipsec.Stats{}
	for _, m := range i.managers {
		i.final = tally.Join(i.final, m.Stats())
	}
}

// forgetKeys closes the Managers, which discards their keys. The workers must have ended.
func (i *ipsecState) forgetKeys() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.managers {
		m.Close()
	}
}

// SetIPsecRules replaces the rules of IPsecConfig.Rules. Connections whose protection changes are reset; ended is their
// number. It does nothing on a device without IPsec.
func (d *Device) SetIPsecRules(rules []ipsec.Rule) (ended int, err error) {
	i := d.x.ipsec
	if i == nil {
		return 0, nil
	}
	i.mu.Lock()
	i.rules = rules
	i.mu.Unlock()
	for _, w := range i.x.all() { // a relay also drops unprotected segments
		m := i.manager(w)
		err = errors.Join(err, w.Do(func() error {
			ended += m.SetRules(rules, core.Now())
			return nil
		}))
	}
	return ended, errors.Join(err, i.x.claims.SetProtected(ipsec.Protected(rules)))
}
