package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/host/neigh"
	"xwarp/engine/host/netspace"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/ring/live"
)

func (x *xdpDriver) open(nic netlink.Link) (err error) {
	link := nic.Attrs().Index
	if x.ns, err = netspace.Current(); err != nil {
		return err
	}
	if err := x.cfg.chooseTransmit(link, nic.Type()); err != nil {
		return err
	}
	if x.steer, err = bpf.Load(bpf.Options{LiveWorkers: x.cfg.liveWorkers(link)}); err != nil {
		return err
	}
	if x.neigh, err = neigh.New(link, x.dev.log, x.hop); err != nil {
		return err
	}
	x.hops.r = x.neigh
	x.watches = append(x.watches, x.neigh.Watch())
	if err := x.steer.SetPeers(x.cfg.Allow); err != nil {
		return err
	}
	// A driver may make more receive queues when a program comes: virtio_net does, one for each processor.
	if x.att, err = x.steer.Attach(link, x.cfg.XDPMode); err != nil {
		return attachBusy(err)
	}
	if err := x.openQueues(link); err != nil {
		return err
	}
	if x.local, err = localaddr.Follow(link, x.dev.log, x.relocate, x.gone); err != nil {
		return err
	}
	x.watches = append(x.watches, x.local.Watch())
	return nil
}

// gone gives the device up when its interface is not there any more: the driver was unbound, the card pulled.
func (x *xdpDriver) gone(err error) {
	err = fmt.Errorf("interface %s is gone: %w", x.cfg.Interface, err)
	for _, w := range x.workers {
		w.post(func() { w.lost, w.suspect = err, true })
	}
}

// warnOfMerging says what would merge segments before the interface's generic XDP sees them.
func (x *xdpDriver) warnOfMerging(nic netlink.Link) {
	list, err := ethtool.Merging(nic)
	if err != nil {
		return // the doctor says more
	}
	for _, m := range list {
		x.dev.log.Warn("a device below the interface merges segments, which are dropped then",
			"interface", x.cfg.Interface, "below", m.Device,
			"next", fmt.Sprintf("ethtool -K %s %s off", m.Device, m.Feature))
	}
}

// relocate hears which addresses are the host's and the interface's.
func (x *xdpDriver) relocate(s *localaddr.State) error {
	local := stackLocal(s)
	for _, w := range x.workers {
		w.post(func() {
			w.stk.SetMAC(s.MAC)
			w.stk.SetLocal(local)
		})
	}
	return errors.Join(x.steer.SetMAC(s.MAC), x.steer.SetLocal(s.Addrs))
}

// stackLocal is the stacks' form of the host's addresses.
func stackLocal(s *localaddr.State) (list []stack.Prefix) {
	for _, p := range s.Networks {
		list = append(list, stack.Prefix{Addr: fromNetip(p.Addr()), Bits: p.Bits()})
	}
	for _, p := range s.Addrs { // those of Networks once more, without a network
		list = append(list, stack.Prefix{Addr: fromNetip(p.Addr()), Bits: p.Bits(),
			All: !p.IsSingleIP()})
	}
	return list
}

func (x *xdpDriver) openQueue(link, queue int) error {
	const ethernet = 14 + 8 // two VLAN tags
	sock, err := ring.Open(ring.Config{
		Ifindex: link, Queue: uint32(queue), RxFrames: uint32(x.cfg.RxFrames),
		TxSlots: uint32(x.cfg.TxFrames),
		TxSlot:  ring.SlotFor(x.cfg.MTU + ethernet), Mode: x.cfg.RingMode,
		HugePages: x.cfg.HugePages,
	})
	if err != nil {
		return err
	}
	if len(x.workers) == 0 {
		x.socket = sock.Info()
	}
	port, err := x.transmitPort(sock, len(x.workers), link)
	if err != nil {
		sock.Close()
		return err
	}
	frames, _ := port.(*live.Port)
	if below := port; x.cfg.Wrap != nil {
		if port, err = x.cfg.Wrap(queue, below); err != nil {
			below.Close()
			return err
		}
	}
	w, err := newWorker(port)
	if err != nil {
		port.Close()
		return err
	}
	w.queue, w.live = queue, frames
	w.stk, err = stack.New(stack.Config{
		Port: port, MAC: x.mac, MTU: x.cfg.MTU, Run: x.cfg.run(), Resolver: x.hops.of(),
		Steering: flows{x, w}, Peers: x.dev.opt.Peers, Stray: x.stray(w),
		Secret: x.secret, Seed: randomSeed(), TrustPartialChecksum: x.cfg.TrustPartialChecksum,
		Defect: w.defect,
	})
	if err != nil {
		w.closeFiles()
		port.Close()
		return err
	}
	w.serving, w.loop.stack = w.stk.Serving, w.stk
	x.workers = append(x.workers, w)
	x.dev.own(w.loop)
	return x.steer.SetSocket(queue, sock.Fd())
}

func (x *xdpDriver) close() error {
	var errs []error
	if x.local != nil {
		x.local.Close()
	}
	for _, w := range x.workers {
		w.end()
		errs = append(errs, w.close())
		w.loop.end()
		w.closeFiles()
	}
	x.live.close()
	if x.steer != nil {
		errs = append(errs, x.steer.Close())
	}
	if x.neigh != nil {
		x.neigh.Close()
	}
	if x.ns != nil {
		x.ns.Close()
	}
	return errors.Join(errs...)
}

// SetAllow replaces XDPConfig.Allow. Connections that are there stay.
func (d *Device) SetAllow(from []netip.Prefix) error {
	x, ok := d.drv.(*xdpDriver)
	if !ok {
		return fmt.Errorf(
			"device: on the kernel's sockets the host's firewall decides who may connect")
	}
	return x.steer.SetPeers(from)
}
