package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/bpf"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/daemon/preflight"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/host/neigh"
	"xwarp/engine/host/netspace"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/monitor"
)

// Device is the device of one [[interface]] table. When it is lost, another Device replaces it.
type Device struct {
	Name   string
	Config config.Interface
	Core   *core.Device
	// NeverOpened is true if the device could not be opened since the daemon started.
	NeverOpened bool

	log        *slog.Logger
	xdp        *xdp.Device     // nil on kernel sockets, and if Absent
	hub        *monitor.Hub    // of captures; nil if the configuration allows none, and on kernel sockets
	privileges *xdp.Privileges // nil on kernel sockets
	past       *past           // counters of the devices that this one replaces
	index      int             // position in the daemon's list

	allow      atomic.Pointer[[]netip.Prefix] // Config.Allow, or that of the last reload
	tables     atomic.Pointer[[]config.IPsec] // Config.IPsec of the last reload; nil before the first
	protect    *config.IPsec                  // Config.Protection(); nil: without IPsec until a restart
	portMapper *portMapperState

	payload       counters.Values // owned by the caller of SysfsFiles
	payloadSummed time.Time       // when payload was read
}

// Opener opens devices by the configuration.
type Opener struct {
	Config func() *config.Loaded // returns the current configuration
	Peers  *budget.Peers
	Log    *slog.Logger
	// FollowSAs, if set, replaces xfrm.Follow in tests.
	FollowSAs func(xfrm.Options) (xfrm.Source, error)
	// Wrap, if set, decorates the port of each queue in tests.
	Wrap func(queue int, p ring.Port) (ring.Port, error)

	mu         sync.Mutex
	privileges []*xdp.Privileges // of all devices
}

// Describe returns the description of the device for programs.
func (d *Device) Describe() control.DeviceInfo {
	nic, netns := d.nic(), ""
	d.Core.Do(func() error { netns = netspace.Name(); return nil })
	return control.DeviceInfo{Name: d.Name, Netns: netns, MAC: nic.HardwareAddr.String(),
		DeviceMode: d.Core.Transport().DeviceMode}
}

// Open opens the device of one table. before is the lost or absent device that it replaces, or nil. If before is nil
// and opening fails, Open returns an absent device and the error; a later call can replace the absent device.
func (p *Opener) Open(c config.Interface, before *Device) (dev *Device, err error) {
	if before != nil {
		c.Allow, c.IPsec = *before.allow.Load(), before.ipsecTables()
	}
	now := p.Config()
	m := &now.MPA
	dev = &Device{Name: c.Name, Config: c, log: p.Log.With("device", c.Name), past: &past{},
		protect: c.Protection(), index: slices.IndexFunc(now.Interface,
			func(v config.Interface) bool { return v.Name == c.Name })}
	o := core.Options{
		MPA: mpaConfig(m), Policy: p.policy, Override: p.override, Peers: p.Peers,
		Keepalive: keepalive(&now.Peers),
		Window:    int(c.Window),
		DSCP:      c.DSCP, HopLimit: c.HopLimit,
		StartupTimeout: m.StartupTimeout.D(), FirstFPDUTimeout: m.FirstFPDUTimeout.OrForever(),
		FPDUTimeout: m.FPDUTimeout.OrForever(), CloseTimeout: m.CloseTimeout.D(),
		Stall: now.Daemon.Stall.D(), Log: dev.log,
	}
	dev.allow.Store(&c.Allow)
	if c.PortMapper == config.PortMapperAsk {
		o.MapPort = dev.mapPort
	}
	ifindex := 0
	if before != nil {
		dev.index = before.index
		ifindex = before.Core.Transport().Ifindex
		dev.protect = before.protect
		if !before.NeverOpened {
			dev.past = before.lastCounters()
		}
	}
	if c.Transport == config.TransportXDP {
		dev.privileges = p.obtainPrivileges(&c, ifindex, before)
		defer func() { releaseOther(dev, before, err) }()
	}
	if c.Transport == config.TransportXDP && now.Daemon.Capture {
		dev.hub = monitor.NewHub(nil)
	}
	if c.Transport == config.TransportKernel {
		dev.Core, err = sockets.Open(sockets.Config{Options: o})
	} else {
		dev.xdp, err = xdp.Open(xdp.Config{
			Options: o, Interface: c.Name, Ifindex: ifindex, Queues: c.Queues, CPUs: c.CPUs,
			XDPMode: xdpModes[c.XDPMode], RingMode: ringModes[c.RingMode],
			Transmit: xdp.Transmit(c.Transmit),
			MTU:      c.MTU, RxFrames: c.RxFrames, TxFrames: c.TxFrames, HugePages: c.HugePages,
			Idle: xdp.Idle(c.Idle), BusyPoll: c.BusyPoll.D(), PollNIC: c.PollNIC,
			Allow: c.Allow, Wrap: dev.wrapper(p.Wrap),
			Privileges: dev.privileges, IPsec: dev.ipsecConfig(p.FollowSAs),
			Plain: dev.observer(),
		})
		if err == nil {
			dev.Core = dev.xdp.Device
		}
	}
	if err != nil {
		err = fmt.Errorf("interface %s: %w%s", c.Name, err, hint(err))
		if before == nil {
			dev.NeverOpened, dev.portMapper = true, &portMapperState{Mapper: &portmapper.Mapper{}}
			dev.Core = core.Absent(verbs.DeviceMode{Name: c.Transport, Interface: c.Name}, err)
		}
		return dev, err
	}
	dev.warnOfCPUs()
	p.openPortMap(dev, before)
	i := dev.Core.Transport()
	dev.log.Info("device is open", "transport", i.Name, "xdp_mode", i.XDPMode,
		"copy", i.Copy, "transmit", i.Transmit, "segments", i.Segments,
		"mtu", i.MTU, "queues", i.Queues)
	return dev, nil
}

// obtainPrivileges returns the privileges for a device: those of an open device on the same network card, those of the
// lost device before, or new ones.
func (p *Opener) obtainPrivileges(c *config.Interface, ifindex int,
	before *Device) *xdp.Privileges {
	p.mu.Lock()
	defer p.mu.Unlock()
	var k *xdp.Privileges
	if before != nil {
		k = before.privileges
	}
	trunk := k.Trunk(ifindex, c.Name)
	for _, other := range p.privileges {
		if trunk != 0 && other != k && other.InUse() == trunk {
			return other.Share()
		}
	}
	if k == nil || k.InUse() != 0 && k.InUse() != trunk {
		k = xdp.NewPrivileges(spareOpenings[c.Restart])
		p.privileges = append(p.privileges, k)
	}
	return k
}

// releaseOther closes the privileges that an attempt to open dev, which ended with err, leaves unused. After a
// failure the caller tries again with those of the lost device.
func releaseOther(dev, before *Device, err error) {
	switch {
	case before == nil || dev.privileges == before.privileges:
	case err == nil:
		before.privileges.Close()
	default:
		dev.privileges.Close()
	}
}

// IsLocal reports whether an address belongs to this host.
func (dev *Device) IsLocal(remote netip.Addr) bool {
	if dev.xdp != nil {
		return dev.xdp.IsLocal(remote)
	}
	return neigh.IsLocal(remote.Unmap())
}

// warnOfCPUs warns of configured CPUs that this machine does not have.
func (dev *Device) warnOfCPUs() {
	for _, cpu := range dev.Config.CPUs {
		if !preflight.HasCPU(cpu) {
			dev.log.Warn("configured CPU does not exist: worker not pinned",
				"cpu", cpu, "next", "correct cpus in [[interface]]; lscpu -e lists the CPUs")
		}
	}
}

// hint returns the next step for errors that do not name one.
func hint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return " (start xwarpd as root or through its unit: systemctl start xwarpd)"
	}
	return ""
}

var xdpModes = map[string]bpf.Mode{"auto": bpf.ModeAuto, "native": bpf.ModeNative,
	"generic": bpf.ModeGeneric}

var ringModes = map[string]ring.Mode{"auto": ring.ModeAuto, "zero-copy": ring.ModeZeroCopy,
	"copy": ring.ModeCopy}

// stale returns err if it says that a device cannot follow the kernel's tables, and has not for staleLimit. Before that
// it returns nil: the device continues with the entries that it read last.
func stale(err error) error {
	if s, ok := errors.AsType[*netwatch.Stale](err); ok && time.Since(s.Since) > staleLimit {
		return err
	}
	return nil
}

// Healthy returns an error if a worker has stalled, or if the device has not followed the kernel's tables for
// staleLimit. It does not block.
func (dev *Device) Healthy() error {
	if dev.Core.Err() != nil {
		return nil // a lost device is closed, and its loss is logged; without any device the daemon ends
	}
	err := dev.Core.Stalled()
	if err == nil && dev.xdp != nil {
		err = stale(dev.xdp.Health())
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", dev.Name, err)
	}
	return nil
}

// allows reports whether a peer may connect. An empty list allows all.
func (dev *Device) allows(peer netip.Addr) bool {
	allow := *dev.allow.Load()
	return len(allow) == 0 ||
		slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// SetAllow changes the peers that may connect to a device on AF_XDP. On a lost device it takes effect when the device
// is reopened.
func (dev *Device) SetAllow(allow []netip.Prefix) error {
	if dev.Config.Transport != config.TransportXDP {
		return nil
	}
	dev.allow.Store(&allow)
	if dev.Core.Err() != nil {
		return nil
	}
	return dev.xdp.SetAllow(allow)
}

// AwaitInterface waits until the interface of a lost or absent device is there and up. It fails if ctx is done first.
func (dev *Device) AwaitInterface(ctx context.Context) error {
	return dev.privileges.Await(ctx, dev.Core.Transport().Ifindex, dev.Name)
}

// Reopened returns the number of times that the interface was reopened.
func (dev *Device) Reopened() uint64 { return dev.past.reopened }

// ClosePortMapper closes the sockets of the port mapper.
func (dev *Device) ClosePortMapper() { dev.portMapper.close() }

// Close closes the device, its port mapper, and the privileges with which it could be reopened.
func (dev *Device) Close() error {
	dev.portMapper.close()
	return errors.Join(dev.Core.Close(), dev.privileges.Close())
}

// remedies are the next step after a device was lost, by its restart policy.
var remedies = map[string]string{
	config.RestartReopen: "nothing, when the interface comes back: it is opened again (restart in its table)",
	config.RestartExit:   "nothing: when the interface is there xwarpd ends, for its unit to start it again (restart in its table)",
	config.RestartNever:  "systemctl restart xwarpd",
}

// Remedy returns what the operator should do about a lost or absent device, as text for logs and errors.
func (dev *Device) Remedy() string {
	if dev.NeverOpened {
		return "fix the cause: the device then opens by itself"
	}
	return remedies[dev.Config.Restart]
}

// Find returns the device with that name, else one whose interface has that current or alternative name, else nil. If
// name is empty, it returns the first device.
func Find(list []*Device, name string) *Device {
	for _, v := range list {
		if name == "" || v.Name == name {
			return v
		}
	}
	for _, v := range list {
		if v.hasName(name) {
			return v
		}
	}
	return nil
}

// hasName reports whether name is the current or an alternative name of the device's interface.
func (d *Device) hasName(name string) (yes bool) {
	t := d.Core.Transport()
	if t.Ifindex == 0 {
		return false
	}
	d.Core.Do(func() error {
		l, err := localaddr.Zone(name)
		yes = err == nil && l.Attrs().Index == t.Ifindex
		return err
	})
	return yes
}

// ifname returns the current name of the device's interface, or on kernel sockets the name of the device.
func (d *Device) ifname() string { return cmp.Or(d.Core.Transport().Interface, d.Name) }

// Names returns the names of devices.
func Names(list []*Device) (names []string) {
	for _, v := range list {
		names = append(names, v.Name)
	}
	return names
}
