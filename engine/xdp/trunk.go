package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/napi"
	"xwarp/engine/host/netspace"
	"xwarp/engine/verbs"
	"xwarp/ring"
)

// trunk is a network interface with the parts that its devices share: the steering program, and a socket with a thread
// for each queue. The devices are on the interface itself and on its VLANs. The first device opens the trunk, and the
// last one closes it.
type trunk struct {
	cfg      Config // of the device that opened it, with Queues and Transmit in effect
	log      *slog.Logger
	name     string // of the interface, when it was opened
	ns       *netspace.Space
	steer    *bpf.Steering
	bond     *bondPart      // nil: the interface itself has the program and the sockets
	att      bpf.Attachment // of the program; for a bond the properties that hold on all members
	auto     bool           // Config.Transmit was TransmitAuto
	veth     bool           // the interface is a veth
	socket   ring.Info      // of the first queue
	polling  busyPolling
	restorer napi.Restorer
	asked    Config         // of the device that opened it, as its user configured it
	found    int            // number of receive queues when the trunk was opened; 0: Config.Queues lists the queues
	ended    chan struct{}  // closed when the trunk is closed
	watching sync.WaitGroup // the goroutines of watch and memberLoop

	mu      sync.Mutex
	threads []*thread
	devices []*driver // in the order in which they were opened
}

// join makes x a device of the trunk on nic, which it opens if x is the first device.
func (x *driver) join(nic netlink.Link) (err error) {
	k := x.cfg.Privileges
	if k == nil {
		k = &Privileges{} // for this device only; it keeps no program and no sockets
	}
	k.joining.Lock()
	defer k.joining.Unlock()
	t := k.trunk
	if t != nil {
		if err := t.admits(x, nic); err != nil {
			return err
		}
	} else if t, err = openTrunk(&x.cfg, nic, x.base.Log()); err != nil {
		return err
	}
	if x.vlan != 0 {
		err = t.keepTags()
	}
	if err == nil {
		x.claims, err = t.steer.OpenVLAN(x.vlan)
	}
	if err != nil {
		if k.trunk == nil {
			err = errors.Join(err, t.close())
		}
		return err
	}
	t.mu.Lock()
	t.devices = append(t.devices, x)
	t.mu.Unlock()
	k.trunk, x.trunk, x.shares = t, t, k
	x.cfg.Queues, x.cfg.Transmit = t.cfg.Queues, t.cfg.Transmit
	return nil
}

// leave undoes join. The workers of x must have ended.
func (x *driver) leave() error {
	k := x.shares
	k.joining.Lock()
	defer k.joining.Unlock()
	t := x.trunk
	t.mu.Lock()
	t.devices = slices.DeleteFunc(t.devices, func(v *driver) bool { return v == x })
	last := len(t.devices) == 0
	t.mu.Unlock()
	err := x.claims.Close()
	if last {
		k.trunk = nil
		err = errors.Join(err, t.close())
	}
	return err
}

// admits returns the error why x cannot be a device of t, or nil if it can.
func (t *trunk) admits(x *driver, nic netlink.Link) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case nic.Attrs().Index != t.att.Ifindex, slices.ContainsFunc(t.threads, (*thread).hasFailed):
		return fmt.Errorf("%w: other devices of %s are being closed", unix.EBUSY, t.name)
	case slices.ContainsFunc(t.devices, func(v *driver) bool { return v.vlan == x.vlan }):
		return fmt.Errorf("%w: another device has this interface open", unix.EBUSY)
	}
	for _, c := range sharedSettings(&t.asked, &x.cfg) {
		if !reflect.DeepEqual(c.was, c.wants) {
			return fmt.Errorf("%w: %s shares the sockets of %s, but %s is %v here and %v there: "+
				"make the settings equal", verbs.ErrInvalid, x.cfg.Interface, t.name, c.name,
				c.wants, c.was)
		}
	}
	return nil
}

// sharedSetting is a setting of the sockets and threads that devices of one trunk share.
type sharedSetting struct {
	name       string // key of the configuration file
	was, wants any
}

func sharedSettings(a, b *Config) []sharedSetting {
	return []sharedSetting{
		{"queues", a.Queues, b.Queues}, {"cpus", a.CPUs, b.CPUs},
		{"xdp_mode", a.XDPMode, b.XDPMode},
		{"ring_mode", a.RingMode, b.RingMode}, {"transmit", a.Transmit, b.Transmit},
		{"rx_frames", a.RxFrames, b.RxFrames}, {"tx_frames", a.TxFrames, b.TxFrames},
		{"huge_pages", a.HugePages, b.HugePages}, {"idle", a.Idle, b.Idle},
		{"busy_poll", a.BusyPoll, b.BusyPoll}, {"poll_nic", a.PollNIC, b.PollNIC},
	}
}

// openTrunk attaches the program to nic and opens its queues, for a device with the configuration cfg.
func openTrunk(cfg *Config, nic netlink.Link, log *slog.Logger) (t *trunk, err error) {
	a := nic.Attrs()
	t = &trunk{cfg: *cfg, asked: *cfg, log: log.With("interface", a.Name), name: a.Name,
		auto: cfg.Transmit == TransmitAuto, veth: isVeth(nic), ended: make(chan struct{})}
	if t.cfg.Interface != a.Name {
		t.cfg.MTU = a.MTU // the device is on a VLAN; other devices of the trunk may have larger packets
	}
	t.cfg.Interface = a.Name
	if err = t.open(nic); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *trunk) open(nic netlink.Link) (err error) {
	if t.ns, err = t.cfg.Privileges.namespace(); err != nil {
		return err
	}
	if err = t.cfg.checkTransmit(); err != nil {
		return err
	}
	if t.steer, err = t.cfg.Privileges.steering(); err != nil {
		return err
	}
	if err = t.openBond(nic); err != nil {
		return err
	}
	if err = t.attach(nic); err != nil {
		return attachBusy(err)
	}
	if t.auto {
		onlyGeneric := t.att.Mode == bpf.ModeGeneric &&
			(t.att.NativeErr != nil || lacksNative(t.att.Ifindex))
		t.cfg.Transmit = autoTransmit(t.veth, onlyGeneric)
	}
	if err = t.openQueues(); err != nil {
		return err
	}
	t.logOpen(nic)
	t.watching.Go(t.watch)
	sockets := len(t.threads)
	if t.bond != nil {
		sockets *= len(t.bond.members)
		if err = t.bond.twins.fillTwins(t.steer); err != nil {
			return err
		}
	}
	// With TransmitAuto a reopened interface may need packet sockets even if it does not now.
	return t.cfg.Privileges.fill(sockets, len(t.threads), t.auto || t.cfg.Transmit == TransmitGSO)
}

// logOpen logs what makes the trunk slow or unsafe.
func (t *trunk) logOpen(nic netlink.Link) {
	if t.att.NativeErr != nil {
		t.log.Warn("generic XDP: slower than native", "because", t.att.NativeErr)
	}
	if t.att.Dispatched {
		t.log.Info("joined libxdp's dispatcher", "beside", t.att.Beside)
	}
	if t.att.OneBuffer != "" {
		t.log.Warn("the dispatcher takes frames of one buffer only: larger frames may be dropped",
			"because", t.att.OneBuffer+" does not support more", "next",
			"a smaller MTU, or xdp-loader unload of that program")
	}
	if t.veth && t.att.Mode == bpf.ModeGeneric {
		if err := t.enableGRO(); err != nil {
			t.log.Warn("cannot turn on GRO: frames of a veth peer may arrive out of order",
				"error", err, "next", "ethtool -K "+t.name+" gro on")
		}
	}
	if t.att.Mode == bpf.ModeGeneric && !t.veth && t.bond == nil {
		t.warnOfMerging(nic)
	}
	if why := t.socket.NoZeroCopy; why != nil {
		t.log.Info("no zero-copy: the kernel copies each frame", "because", why)
	}
	if why := t.socket.Fault; why != nil {
		t.log.Warn("zero-copy on a faulty driver: received data may be corrupt",
			"because", why, "next", `ring_mode = "auto"`)
	}
}

// startThreads starts the threads that do not run yet.
func (t *trunk) startThreads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, th := range t.threads {
		cpu := -1
		if i < len(t.cfg.CPUs) {
			cpu = t.cfg.CPUs[i]
		}
		th.start(cpu, t.cfg.BusyPoll)
	}
}

// isFirst reports whether x was opened first of the open devices: it reports the counters of the program and the
// sockets.
func (t *trunk) isFirst(x *driver) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.devices) > 0 && t.devices[0] == x
}

// isAlone reports whether x is the only device.
func (x *driver) isAlone() bool {
	x.trunk.mu.Lock()
	defer x.trunk.mu.Unlock()
	return len(x.devices) == 1
}

// close closes the trunk, which must have no device.
func (t *trunk) close() error {
	var errs []error
	close(t.ended)
	t.watching.Wait()
	t.closeFollower()
	for _, th := range t.threads {
		errs = append(errs, th.close())
	}
	errs = append(errs, t.returnTwins())
	if t.steer != nil && t.cfg.Privileges == nil {
		errs = append(errs, t.steer.Close())
	} else if t.steer != nil {
		errs = append(errs, t.steer.Detach())
	}
	if t.ns != nil {
		errs = append(errs, t.ns.Do(t.restorer.Close))
		if t.cfg.Privileges == nil {
			t.ns.Close()
		}
	}
	return errors.Join(errs...)
}

// watchInterval is the interval of watch. Until watch sees new queues, frames on them are lost, and TCP retransmits
// them.
const watchInterval = time.Second

// watch looks for changes that the kernel does not announce, until the trunk is closed: changes of the number of
// receive queues, unless Config.Queues lists them or the interface is a bond, and other processes that detach the
// program.
func (t *trunk) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	queues, failure := t.found, ""
	for {
		select {
		case <-t.ended:
			return
		case <-tick.C:
		}
		failure = t.reattach(failure)
		if t.found == 0 || t.bond != nil {
			continue
		}
		if n := t.receiveQueues(); n != queues && n != 0 {
			t.relayQueues(queues, n)
			queues = n
		}
	}
}

// reattach attaches the program again if another process has detached it. It returns the text of the error if that
// fails, otherwise "". It logs an error whose text is not last.
func (t *trunk) reattach(last string) string {
	var again bool
	space := t.ns
	if t.bond != nil {
		space = t.bond.space
	}
	err := space.Do(func() (err error) {
		again, err = t.reattachAll()
		return err
	})
	if again {
		t.log.Warn("attached the XDP program again: another process had detached it")
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return "" // the interface is gone, and the devices end
	}
	text := verbs.ErrorText(err)
	if text != "" && text != last {
		t.log.Error("another process detached the XDP program: no connection receives frames",
			"error", err, "next", "remove what the error names; xwarp tries again every second")
	}
	return text
}

// reattachAll calls Reattach of the program, or of those of the members of a bond.
func (t *trunk) reattachAll() (again bool, err error) {
	if t.bond == nil {
		return t.steer.Reattach()
	}
	t.bond.mu.Lock()
	defer t.bond.mu.Unlock()
	for _, m := range t.bond.members {
		ok, failed := m.steer.Reattach()
		again, err = again || ok, errors.Join(err, failed)
	}
	return again, err
}

// receiveQueues returns the number of receive queues of the interface, or 0 if it is unknown now.
func (t *trunk) receiveQueues() (n int) {
	err := t.ns.Do(func() (err error) {
		n, err = ring.ReceiveQueues(t.att.Ifindex, ring.MaxQueues)
		return err
	})
	if err != nil {
		return 0
	}
	return n
}

// linkName returns the current name of the interface, which may have been renamed.
func (t *trunk) linkName() (name string) {
	t.ns.Do(func() error {
		nic, err := netlink.LinkByIndex(t.att.Ifindex)
		if err == nil {
			name = nic.Attrs().Name
		}
		return err
	})
	return cmp.Or(name, t.name)
}
