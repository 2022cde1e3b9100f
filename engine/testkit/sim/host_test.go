package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"xwarp/engine/ipsec"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// HostConfig describes a host.
type HostConfig struct {
	Name     string
	Addrs    []ip.Addr
	MTU      int // default 1500
	RxFrames int // chunks for reception; default 256
	TxSlots  int // frames in flight in transmission; default 64
	Up, Down Path
	// Kernel configures the fake NIC. With Manual, transmissions complete when the next frame is taken.
	Kernel ring.FakeConfig
	// Latency is how long an arrived frame waits for the worker: the cost of an interrupt or a busy CPU.
	Latency tick.Duration
	// HopDelay is the delay of a reply of the neighbour table.
	HopDelay tick.Duration
	// Split is the maximum number of bytes of an injected chunk. Zero means the largest chunks that fit.
	Split int
	// Wrap, if set, returns the port that the stack uses instead of p.
	Wrap func(p ring.Port) (ring.Port, error)
	// SecondQueue lets some frames arrive on another queue, whose worker hands them over.
	SecondQueue bool
	// IPsec, if set, creates the Manager of each new stack. The Manager of a second queue owns no SA.
	IPsec func(h *Host, second bool) *ipsec.Manager
	// Defect is stack.Config.Defect.
	Defect func(*stack.Defect)
}

// Host is one engine: a stack on a fake NIC. Its methods may only be called between steps, or from events, taps and
// upper layers.
type Host struct {
	cfg          HostConfig
	world        *World
	index        int
	mac          [6]byte
	kernel       *ring.FakeKernel
	port         ring.Port
	stk          *stack.Stack
	ipsec        *ipsec.Manager // nil: no IPsec
	relay        *relay         // worker of the second queue; nil: there is only one queue
	incarnations uint64
	secret       [16]byte // secret of the stack
	kicks        []func()
	apps         []func(now tick.Time)
	wakeAt       tick.Time // time of the next step because frames wait, or upper layers have work
	timeAt       tick.Time // the stack's deadline after the last step
	buf          []byte
	passed       [][]byte // sent frames that are not on the path yet; see Emit
	stats        HostStats
}

// HostStats counts the actions of a host.
type HostStats struct {
	Sent, Received, NoRoom uint64 // frames
	Steps                  uint64
	IdleTimers             uint64 // timer wake-ups after which nothing was sent
	Reboots                uint64
}

// AddHost adds a host to w.
func (w *World) AddHost(cfg HostConfig) (*Host, error) {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&cfg.MTU, 1500)
	set(&cfg.RxFrames, 256)
	set(&cfg.TxSlots, 64)
	h := &Host{cfg: cfg, world: w, index: len(w.hosts), kernel: ring.NewFakeKernel(cfg.Kernel),
		wakeAt: tick.Never, timeAt: tick.Never}
	h.mac = [6]byte{2, 0, 0, 0, 0, byte(h.index + 1)}
	if err := h.boot(); err != nil {
		return nil, fmt.Errorf("host %s: %w", cfg.Name, err)
	}
	w.hosts = append(w.hosts, h)
	return h, nil
}

func (h *Host) boot() error {
	const ethernet = 14 + 8
	rings := ring.Config{
		RxFrames: uint32(h.cfg.RxFrames), TxSlots: uint32(h.cfg.TxSlots),
		TxSlot: ring.SlotFor(h.cfg.MTU + ethernet),
	}
	sock, err := ring.OpenFake(rings, h.kernel)
	if err != nil {
		return err
	}
	h.port = sock
	if h.cfg.Wrap != nil {
		if h.port, err = h.cfg.Wrap(sock); err != nil {
			return err
		}
	}
	h.incarnations++
	cfg := stack.Config{Port: h.port, MAC: h.mac, MTU: h.cfg.MTU, Resolver: h,
		Defect: h.cfg.Defect}
	cfg.Seed = mix(h.world.seed ^ uint64(h.index)<<32 ^ h.incarnations)
	binary.LittleEndian.PutUint64(cfg.Secret[:], mix(cfg.Seed))
	binary.LittleEndian.PutUint64(cfg.Secret[8:], mix(cfg.Seed+1))
	h.secret = cfg.Secret
	if h.cfg.IPsec != nil {
		h.ipsec = h.cfg.IPsec(h, false)
		cfg.IPsec = h.ipsec
	}
	if h.stk, err = stack.New(cfg); err != nil {
		return err
	}
	if h.ipsec != nil {
		h.ipsec.Use(h.stk)
	}
	if !h.cfg.SecondQueue {
		return nil
	}
	return h.bootRelay(rings)
}

// Reboot erases all state of h; frames in its NIC are lost. The upper layers of its connections get no more events. The
// caller sets up listeners and apps again.
func (h *Host) Reboot() error {
	if err := h.port.Close(); err != nil {
		return err
	}
	if h.relay != nil {
		if err := h.relay.stk.Close(h.world.now); err != nil {
			return err
		}
	}
	h.kicks, h.apps, h.passed = nil, nil, nil
	h.wakeAt, h.timeAt = tick.Never, tick.Never
	h.stats.Reboots++
	return h.boot()
}

// Stack returns the stack. Reboot replaces it.
func (h *Host) Stack() *stack.Stack { return h.stk }

// Name returns the name.
func (h *Host) Name() string { return h.cfg.Name }

// Addr returns the i-th address.
func (h *Host) Addr(i int) ip.Addr { return h.cfg.Addrs[i] }

// MAC returns the Ethernet address.
func (h *Host) MAC() [6]byte { return h.mac }

// Stats returns the counters.
func (h *Host) Stats() HostStats { return h.stats }

// Kick makes a step due now, and runs f at its start.
func (h *Host) Kick(f func()) {
	h.kicks = append(h.kicks, f)
	h.Wake()
}

// Wake makes the host step now, because an upper layer has work for it.
func (h *Host) Wake() { h.wakeAt = min(h.wakeAt, h.world.now) }

// Each runs f after each step of h, like a consumer that checks its connections.
func (h *Host) Each(f func(now tick.Time)) { h.apps = append(h.apps, f) }

// errNoAnswer is the resolver's error for a next hop that does not answer.
var errNoAnswer = errors.New("no answer to ARP")

// Request implements stack.Resolver.
func (h *Host) Request(dst ip.Addr) {
	life := h.incarnations
	h.world.After(h.cfg.HopDelay, func() {
		if h.incarnations != life {
			return
		}
		if to := h.world.byAddr(dst); to != nil {
			h.stk.SetHop(dst, to.mac, nil)
		} else {
			h.stk.SetHop(dst, [6]byte{}, errNoAnswer)
		}
		h.Wake()
	})
}

// Forget implements stack.Resolver.
func (h *Host) Forget(ip.Addr) {}

// due returns when the worker must run next.
func (h *Host) due() tick.Time { return min(h.wakeAt, h.timeAt) }

// next returns the time of the next event of h or its paths.
func (h *Host) next() tick.Time {
	t := h.due()
	if h.cfg.Up != nil {
		t = min(t, h.cfg.Up.Deadline())
	}
	if h.cfg.Down != nil {
		t = min(t, h.cfg.Down.Deadline())
	}
	return t
}

// inject lets the NIC receive a frame.
func (h *Host) inject(frame []byte) {
	ok, kernel := false, h.kernel
	if h.relay.takes(frame, h.world.now) {
		kernel = h.relay.kernel
	}
	if h.cfg.Split > 0 {
		ok = kernel.InjectSplit(frame, h.cfg.Split)
	} else {
		ok = kernel.Inject(frame)
	}
	if !ok {
		h.stats.NoRoom++
		h.world.record(h, Dropped, frame)
		return
	}
	h.stats.Received++
	h.world.record(h, In, frame)
	h.wakeAt = min(h.wakeAt, h.world.now.Add(h.cfg.Latency))
}

// Inject lets the NIC of h receive a frame that no host sent, as from an attacker.
func (h *Host) Inject(frame []byte) { h.inject(frame) }

// runInstant steps until nothing more is due now.
func (h *Host) runInstant() {
	now := h.world.now
	timer := h.wakeAt > now
	sent := h.stats.Sent
	h.wakeAt = tick.Never
	for i := 0; ; i++ {
		if i == MaxSteps {
			h.world.Fail(fmt.Errorf("host %s never comes to rest: %d steps at one instant "+
				"(blocked %v)", h.cfg.Name, i, h.stk.Blocked()))
			return
		}
		kicks := h.kicks
		h.kicks = nil
		for _, f := range kicks {
			f()
		}
		h.stats.Steps++
		worked := h.relay.step(now)
		worked = h.step(now) || worked
		h.forwardOutput()
		for _, f := range h.apps {
			f(now)
		}
		if !worked && !h.stk.Blocked() && len(h.kicks) == 0 {
			break
		}
	}
	if timer && sent == h.stats.Sent {
		h.stats.IdleTimers++
	}
	h.timeAt = min(h.stk.Deadline(), h.relay.deadline())
	if h.timeAt <= now {
		h.world.Fail(fmt.Errorf("host %s: the next deadline is %v ago", h.cfg.Name,
			now.Sub(h.timeAt)))
	}
	if err := h.kernel.Check(); err != nil {
		h.world.Fail(err)
	}
}

// step makes one step of the stack. It checks that Transmit has no effect if the stack is quiet, since a worker skips
// it then.
func (h *Host) step(now tick.Time) bool {
	worked := h.stk.Receive(now)
	quiet, kicks := h.stk.Quiet() && h.stk.Deadline() > now, h.kernel.FakeStats().Kicks
	sent := h.stk.Transmit(now)
	if quiet && (sent || h.kernel.FakeStats().Kicks != kicks) {
		h.world.Fail(fmt.Errorf("host %s was quiet and transmitted", h.cfg.Name))
	}
	return worked || sent
}

// forwardOutput moves transmitted frames to the path.
func (h *Host) forwardOutput() {
	for _, f := range h.passed {
		h.leave(f)
	}
	h.passed = h.passed[:0]
	for h.pop() {
		h.leave(h.buf)
	}
}

// pop sets h.buf to the next frame that the kernel took from the transmit ring. It returns false if there is none.
func (h *Host) pop() (ok bool) {
	if h.cfg.Kernel.Manual {
		h.kernel.CompleteFrames(-1)
	}
	h.buf, ok = h.kernel.Take(h.buf[:0])
	return ok
}

// Emit lets the NIC of h transmit a frame that bypasses its rings, after the frames that the kernel has already taken
// from there.
func (h *Host) Emit(frame []byte) {
	for h.pop() {
		h.passed = append(h.passed, bytes.Clone(h.buf))
	}
	h.passed = append(h.passed, bytes.Clone(frame))
}

// leave puts a frame on the path.
func (h *Host) leave(frame []byte) {
	h.stats.Sent++
	if n := len(frame) - ip.EthernetLen; n > h.cfg.MTU {
		h.world.Fail(fmt.Errorf("host %s: a packet of %d bytes, its MTU is %d", h.cfg.Name, n,
			h.cfg.MTU))
	}
	h.world.record(h, Out, frame)
	up := h.cfg.Up
	if up == nil {
		h.world.route(frame)
		return
	}
	up.Push(frame, h.world.now)
	for r := up.Reply(); r != nil; r = up.Reply() {
		h.inject(r)
	}
}

// Audit checks that each chunk of the host's UMEM has exactly one owner.
func (h *Host) Audit() error {
	err := h.stk.Audit()
	if err == nil && h.relay != nil {
		err = errors.Join(h.relay.stk.Audit(), h.relay.kernel.Check())
		if n := h.relay.kernel.FakeStats().Accepted; err == nil && n > 0 {
			err = fmt.Errorf("%d frames left by the second queue", n)
		}
	}
	if err != nil {
		return fmt.Errorf("host %s: %w", h.cfg.Name, err)
	}
	return nil
}
