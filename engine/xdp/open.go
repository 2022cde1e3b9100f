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
	link := nic.Attrs().Index
	if x.ns, err = x.cfg.Privileges.namespace(); err != nil {
		return err
	}
	x.auto, x.veth = x.cfg.Transmit == TransmitAuto, isVeth(nic)
	if err := x.cfg.checkTransmit(); err != nil {
		return err
	}
	if x.steer, err = x.cfg.Privileges.steering(); err != nil {
		return err
	}
	if x.neigh, err = neigh.New(link, x.base.Log(), x.onNextHop); err != nil {
		return err
	}
	x.hops.r = x.neigh
	x.watches = append(x.watches, x.neigh.Watch())
	if err := x.setAllow(x.cfg.Allow); err != nil {
		return err
	}
	// A driver may create more receive queues when a program is attached: virtio_net creates one per CPU.
	if x.att, err = x.steer.Attach(link, x.cfg.attachMode(nic)); err != nil {
		return attachBusy(err)
	}
	if x.auto {
		x.cfg.Transmit = autoTransmit(x.veth, x.att.Mode == bpf.ModeGeneric)
	}
	if err := x.steer.SetProtected(nil); err != nil { // the program may belong to an earlier device
		return err
	}
	x.openIPsec()
	if err := x.openQueues(link); err != nil {
		return err
	}
	if err := x.ipsec.follow(x.workers); err != nil {
		return err
	}
	x.link.room, x.link.mtu = x.mtuRoom(), x.cfg.MTU
	x.local, err = localaddr.Follow(link, x.base.Log(), x.onLocalChange, x.onInterfaceGone)
	if err != nil {
		return err
	}
	x.watches = append(x.watches, x.local.Watch())
	if err = x.openLoopback(); err != nil {
		return err
	}
	// Under auto a reopened interface may need another way to transmit than now.
	return x.cfg.Privileges.fill(len(x.workers), x.auto || x.cfg.Transmit == TransmitGSO)
}

// warnOfMerging warns of devices that would merge segments before the interface's generic XDP sees them.
func (x *driver) warnOfMerging(nic netlink.Link) {
	list, err := ethtool.Merging(nic)
	if err != nil {
		return // xwarp doctor reports it
	}
	for _, m := range list {
		x.base.Log().Warn("a device below merges received segments: xwarp drops those without a checksum, and peers retransmit",
			"interface", x.cfg.Interface, "below", m.Device,
			"next", fmt.Sprintf("ethtool -K %s %s off", m.Device, m.Feature))
	}
}

// stackLocal returns the host's addresses in the form of the stacks.
func stackLocal(s *localaddr.State) (list []stack.Prefix) {
	for _, p := range s.Networks {
		list = append(list, stack.Prefix{Addr: core.FromNetip(p.Addr()), Bits: p.Bits()})
	}
	for _, p := range s.Addrs { // includes the addresses of Networks
		list = append(list, stack.Prefix{Addr: core.FromNetip(p.Addr()), Bits: p.Bits(),
			All: !p.IsSingleIP()})
	}
	return list
}

// ethernet is the maximum number of bytes before an IP packet: an Ethernet header with two VLAN tags.
const ethernet = 14 + 8

// openQueue starts the worker of a queue. wait is ring.Config.BindTimeout.
func (x *driver) openQueue(link, queue int, wait time.Duration) error {
	sock, err := x.openSocket(queue, wait)
	if err != nil {
		return err
	}
	if len(x.workers) == 0 {
		x.socket = sock.Info()
	}
	x.pollQueue(sock)
	port, err := x.transmitPort(sock, link)
	if err != nil {
		sock.Close()
		return err
	}
	w, err := x.newWorker(queue, port, x.strayHandler)
	if err != nil {
		return err
	}
	x.workers = append(x.workers, w)
	x.base.AddShard(w.Shard)
	return x.steer.SetSocket(queue, sock.Fd())
}

func (x *driver) openSocket(queue int, wait time.Duration) (*ring.Socket, error) {
	c := ring.Config{
		Ifindex: x.att.Ifindex, Queue: uint32(queue), RxFrames: uint32(x.cfg.RxFrames),
		TxSlots: uint32(x.cfg.TxFrames), TxSlot: ring.SlotFor(x.cfg.MTU + ethernet),
		LargeFrames: x.att.Mode == bpf.ModeGeneric,
		Mode:        x.cfg.RingMode, HugePages: x.cfg.HugePages, BindTimeout: wait,
	}
	if x.cfg.Privileges != nil {
		c.NewSocket = x.cfg.Privileges.takeXDPSocket
	}
	return ring.Open(c)
}

// newWorker creates the worker of a queue. It owns the port, and closes it if it fails.
func (x *driver) newWorker(queue int, port ring.Port,
	stray func(*worker) func(*stack.Stray) bool) (*worker, error) {
	if below := port; x.cfg.Wrap != nil {
		var err error
		if port, err = x.cfg.Wrap(queue, below); err != nil {
			below.Close()
			return nil, err
		}
	}
	w, err := newWorker(port)
	if err != nil {
		port.Close()
		return nil, err
	}
	w.Queue = queue
	cfg := stack.Config{
		Port: port, MAC: x.mac, MTU: x.cfg.MTU,
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
			cfg.Plain = x.cfg.Plain(queue)
		}
	}
	w.stk, err = stack.New(cfg)
	if err != nil {
		w.closeFiles()
		port.Close()
		return nil, err
	}
	if protect != nil {
		protect.Use(w.stk)
	}
	w.Serving, w.Shard.TCP = w.stk.Serving, ownTCP{w.stk}
	return w, nil
}

// all returns the workers of all queues, including the relays.
func (x *driver) all() []*worker {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	return x.stacks()
}

// stacks returns the same as all. The caller holds link.mu.
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
	x.following.Wait()
	if x.loopback != nil {
		x.loopback.Close()
	}
	list := x.all()
	for _, w := range list {
		w.stopThread()
	}
	x.last = x.counters()
	x.ipsec.keepCounters()
	for _, w := range list {
		errs = append(errs, w.close())
		w.Shard.CloseMailbox()
		w.closeFiles()
	}
	x.ipsec.forgetKeys()
	if x.steer != nil {
		x.lastSteering, _ = x.steer.Counters()
	}
	if x.steer != nil && x.cfg.Privileges == nil {
		errs = append(errs, x.steer.Close())
	} else if x.steer != nil {
		errs = append(errs, x.steer.Detach())
	}
	if x.neigh != nil {
		x.neigh.Close()
	}
	if x.restorer != nil {
		errs = append(errs, x.ns.Do(x.restorer.Close))
	}
	if x.ns != nil && x.cfg.Privileges == nil {
		x.ns.Close()
	}
	return errors.Join(errs...)
}

// SetAllow replaces Config.Allow. Existing connections stay.
func (d *Device) SetAllow(from []netip.Prefix) error { return d.x.setAllow(from) }
