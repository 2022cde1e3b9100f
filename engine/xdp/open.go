package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/host/neigh"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/ring"
)

func (x *driver) openInterface(nic netlink.Link) (err error) {
	trunk := nic
	if trunk, x.vlan, x.noTrunk = trunkOf(nic); x.noTrunk != nil {
		x.base.Log().Warn("VLAN cannot use the sockets of its parent: slower", "interface",
			x.cfg.Interface, "because", x.noTrunk)
	}
	if err = x.join(trunk); err != nil {
		return err
	}
	if x.neigh, err = neigh.New(x.ifindex, x.base.Log(), x.onNextHop); err != nil {
		return err
	}
	x.hops.r = x.neigh
	x.watches = append(x.watches, x.neigh.Watch())
	if err := errors.Join(x.claims.SetMAC(x.mac), x.setAllow(x.cfg.Allow)); err != nil {
		return err
	}
	x.openIPsec()
	if err := x.openWorkers(); err != nil {
		return err
	}
	if err := x.ipsec.follow(x.workers); err != nil {
		return err
	}
	x.link.room, x.link.mtu = x.mtuRoom(), x.cfg.MTU
	x.local, err = localaddr.Follow(x.ifindex, x.base.Log(), x.onLocalChange, x.onInterfaceGone)
	if err != nil {
		return err
	}
	x.watches = append(x.watches, x.local.Watch())
	return x.openLoopback()
}

// openWorkers creates a worker on each thread of the trunk.
func (x *driver) openWorkers() error {
	x.trunk.mu.Lock()
	defer x.trunk.mu.Unlock()
	for _, t := range x.threads {
		w, err := x.newWorker(t, x.strayHandler)
		if err != nil {
			return err
		}
		if f := x.cfg.Consumer; f != nil {
			w.consumer = func() bool { return f(t.queue) }
		}
		x.workers = append(x.workers, w)
		x.base.AddShard(w.Shard)
	}
	for _, w := range x.workers { // a worker may serve only when all shards of the device exist
		w.thread.addWorker(w)
	}
	return nil
}

// warnOfMerging warns of devices that would merge segments before the interface's generic XDP sees them.
func (t *trunk) warnOfMerging(nic netlink.Link) {
	list, err := ethtool.Merging(nic)
	if err != nil {
		return // xwarp doctor reports it
	}
	for _, m := range list {
		t.log.Warn("a device below merges received segments: xwarp drops those without a checksum, and peers retransmit",
			"below", m.Device,
			"next", fmt.Sprintf("ethtool -K %s %s off", m.Device, m.Feature))
	}
}

// stackLocal returns the host's addresses in the form of the stacks.
func stackLocal(s *localaddr.State) (list []stack.Prefix) {
	for _, p := range s.Networks {
		list = append(list, stack.Prefix{Addr: core.FromNetip(p.Addr()), Bits: p.Bits()})
	}
	for _, p := range s.Addrs { // these include the addresses of Networks
		list = append(list, stack.Prefix{Addr: core.FromNetip(p.Addr()), Bits: p.Bits(),
			All: !p.IsSingleIP()})
	}
	return list
}

// ethernet is the maximum number of bytes before an IP packet: an Ethernet header with two VLAN tags.
const ethernet = 14 + 8

// openThread opens the socket of a queue and creates its thread, which does not run yet. wait is
// ring.Config.BindTimeout. wrap returns the port of the thread, which is the socket or a decorator of it.
func (t *trunk) openThread(queue int, wait time.Duration,
	wrap func(*ring.Socket) (ring.Port, error)) (*thread, error) {
	sock, err := t.openSocket(t.att.Ifindex, queue, wait)
	if err != nil {
		return nil, err
	}
	port, err := wrap(sock)
	if err != nil {
		sock.Close()
		return nil, err
	}
	th, err := newThread(queue, port)
	if err == nil {
		err = t.steer.SetSocket(queue, sock.Fd())
	}
	if err != nil {
		port.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.threads = append(t.threads, th)
	return th, nil
}

// openQueue opens the sockets and the thread of a queue that the device serves. wait is ring.Config.BindTimeout.
func (t *trunk) openQueue(queue int, wait time.Duration) error {
	if t.bond != nil {
		return t.openGroupThread(queue, wait)
	}
	_, err := t.openThread(queue, wait, func(sock *ring.Socket) (ring.Port, error) {
		if len(t.threads) == 0 {
			t.socket = sock.Info()
		}
		t.pollQueue(sock)
		return t.transmitPort(sock, t.att.Ifindex)
	})
	return err
}

func (t *trunk) openSocket(ifindex, queue int, wait time.Duration) (*ring.Socket, error) {
	c := ring.Config{
		Ifindex: ifindex, Queue: uint32(queue), RxFrames: uint32(t.cfg.RxFrames),
		TxSlots: uint32(t.cfg.TxFrames), TxSlot: ring.SlotFor(t.cfg.MTU + ethernet),
		// The sockets of all members of a bond have chunks of one size, so that a frame for one fits the others.
		LargeFrames: t.att.Mode == bpf.ModeGeneric || t.bond != nil,
		Mode:        t.cfg.RingMode, HugePages: t.cfg.HugePages, BindTimeout: wait,
	}
	if t.cfg.Privileges != nil {
		c.NewSocket = t.cfg.Privileges.takeXDPSocket
	}
	return ring.Open(c)
}

// newWorker creates a worker for a thread. The thread serves it after addWorker. stray returns the handler of frames
// that belong to other workers.
func (x *driver) newWorker(t *thread,
	stray func(*worker) func(*stack.Stray) bool) (*worker, error) {
	w := newWorker(t, x.vlan)
	if x.cfg.Wrap != nil {
		var err error
		if w.port, err = x.cfg.Wrap(t.queue, w.lane); err != nil {
			return nil, err
		}
	}
	cfg := stack.Config{
		Port: w.port, MAC: x.mac, MTU: x.cfg.MTU, VLAN: x.vlan,
		TOS: x.tos(), HopLimit: uint8(x.base.Options().HopLimit),
		Resolver: x.hops.forWorker(),
		Steering: flows{x, w}, Peers: x.base.Options().Peers,
		Stray:  stray(w),
		Secret: x.secret, Seed: core.RandomSeed(), Veth: x.veth,
		Defect: func(d *stack.Defect) { w.ReportDefect(&d.Tuple, d.Value, d.Trace) },
	}
	protect := x.ipsec.newManager(w)
	if protect != nil {
		cfg.IPsec = protect
		if x.cfg.Plain != nil {
			cfg.Plain = x.cfg.Plain(t.queue)
		}
	}
	var err error
	if w.stk, err = stack.New(cfg); err != nil {
		return nil, errors.Join(err, w.port.Close())
	}
	if protect != nil {
		protect.Use(w.stk)
	}
	w.Serving, w.Shard.TCP = w.stk.Serving, ownTCP{w.stk}
	w.Post(w.RecordGoroutine)
	return w, nil
}

// all returns the workers of all queues, including the relays.
func (x *driver) all() []*worker {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	return x.stacks()
}

// stacks returns the workers of all queues, including the relays. The caller must hold link.mu.
func (x *driver) stacks() []*worker {
	return append(x.workers[:len(x.workers):len(x.workers)], x.relays...)
}

func (x *driver) Close() error {
	var errs []error
	x.closing.Store(true)
	x.ipsec.close()
	if x.local != nil {
		x.local.Close()
	}
	if x.loopback != nil {
		x.loopback.Close()
	}
	// isFirst waits until a relay that is being added is in x.relays. x.closing prevents further relays.
	first := x.trunk != nil && x.isFirst(x)
	for _, w := range x.all() {
		w.stop.Store(true)
		w.thread.do(func() {
			core.Attempt(func() { x.last = append(x.last, w.stats()) }) // the worker may have ended with a panic
			errs = append(errs, w.close())
		})
	}
	x.ipsec.keepCounters()
	x.ipsec.forgetKeys()
	if first {
		x.lastSteering, _ = x.steer.Counters()
	}
	if x.trunk != nil {
		errs = append(errs, x.leave())
	}
	if x.neigh != nil {
		x.neigh.Close()
	}
	return errors.Join(errs...)
}

// SetAllow replaces Config.Allow. Existing connections are not affected.
func (d *Device) SetAllow(from []netip.Prefix) error { return d.x.setAllow(from) }
