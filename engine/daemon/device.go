package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"xwarp/bpf"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/daemon/preflight"
	"xwarp/engine/host/neigh"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/monitor"
)

// device is one [[interface]].
type device struct {
	name string
	cfg  config.Interface
	log  *slog.Logger
	dev  *core.Device
	xdp  *xdp.Device     // dev, when it is on AF_XDP and was opened
	hub  *monitor.Hub    // of captures; nil: none are taken
	kit  *xdp.Privileges // nil on the kernel's sockets
	past *past           // of the devices that had the interface before

	allow   atomic.Pointer[[]netip.Prefix] // cfg.Allow, or what a reload put in its place
	tables  atomic.Pointer[[]config.IPsec] // the same of cfg.IPsec; nil: no reload
	protect *config.IPsec                  // nil: without IPsec, until a restart
	ports   *portMap

	absent bool // it could not be opened since the daemon started
}

func (d *device) info() control.DeviceInfo {
	t := d.dev.Transport()
	return control.DeviceInfo{
		Name: d.name, Transport: t.Name, Interface: t.Interface, XDPMode: t.XDPMode,
		Transmit: t.Transmit, Copy: t.Copy, Segments: t.Segments, MTU: t.MTU, Queues: t.Queues,
		Fallback: text(t.Fallback), NoZeroCopy: text(t.NoZeroCopy),
	}
}

// text is what an error says; empty for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// open opens the device of one table, again after before if that is not nil. When the first attempt fails, the
// device is absent, and may be opened later.
func (d *Daemon) open(c config.Interface, before *device) (*device, error) {
	if before != nil {
		c.Allow, c.IPsec = *before.allow.Load(), before.ipsecTables()
	}
	now := d.cfg.Load()
	m := &now.MPA
	dev := &device{name: c.Name, cfg: c, log: d.log.With("device", c.Name), past: &past{},
		protect: c.Protection()}
	o := core.Options{
		MPA: mpaConfig(m), Policy: d.policy, Override: d.override, Peers: d.peers,
		Keepalive:      keepalive(&now.Peers),
		Window:         int(c.Window),
		StartupTimeout: m.StartupTimeout.D(), FirstFPDUTimeout: m.FirstFPDUTimeout.D(),
		FPDUTimeout: m.FPDUTimeout.D(), CloseTimeout: m.CloseTimeout.D(),
		Stall: now.Daemon.Stall.D(), Log: dev.log,
	}
	if o.FirstFPDUTimeout == 0 {
		o.FirstFPDUTimeout = -1 // for ever
	}
	if o.FPDUTimeout == 0 {
		o.FPDUTimeout = -1
	}
	dev.allow.Store(&c.Allow)
	if c.PortMapper == config.PortMapperAsk {
		o.MapPort = dev.mapPort
	}
	if before != nil {
		dev.kit, dev.protect = before.kit, before.protect
		if !before.absent {
			dev.past = before.past.keep(new(before.counted()))
		}
	} else if c.Transport == config.TransportXDP {
		dev.kit = xdp.NewPrivileges(spareOpenings[c.Restart])
	}
	if c.Transport == config.TransportXDP && now.Daemon.Capture {
		dev.hub = monitor.NewHub(nil)
	}
	var err error
	if c.Transport == config.TransportKernel {
		dev.dev, err = sockets.Open(sockets.Config{Options: o})
	} else {
		dev.xdp, err = xdp.Open(xdp.Config{
			Options: o, Interface: c.Name, Queues: c.Queues, CPUs: c.CPUs,
			XDPMode: xdpModes[c.XDPMode], RingMode: ringModes[c.RingMode],
			Transmit: xdp.Transmit(c.Transmit),
			MTU:      c.MTU, RxFrames: c.RxFrames, TxFrames: c.TxFrames, HugePages: c.HugePages,
			Idle: xdp.Idle(c.Idle), BusyPoll: c.BusyPoll.D(),
			TrustPartialChecksum: c.TrustPartialChecksum, Allow: c.Allow, Wrap: dev.wrapPort,
			Privileges: dev.kit, IPsec: dev.ipsecConfig(d.followSAs),
		})
		if err == nil {
			dev.dev = dev.xdp.Device
		}
	}
	if err != nil {
		err = fmt.Errorf("interface %s: %w%s", c.Name, err, hint(err))
		if before == nil {
			dev.absent, dev.ports = true, &portMap{Mapper: &portmapper.Mapper{}}
			dev.dev = core.Absent(verbs.Transport{Name: c.Transport, Interface: c.Name}, err)
		}
		return dev, err
	}
	dev.warnOfCPUs()
	d.openPortMap(dev, before)
	i := dev.info()
	dev.log.Info("device is open", "transport", i.Transport, "xdp_mode", i.XDPMode,
		"copy", i.Copy, "transmit", i.Transmit, "segments", i.Segments,
		"mtu", i.MTU, "queues", i.Queues)
	return dev, nil
}

// isLocal reports whether connections to an address do not leave this host.
func (dev *device) isLocal(remote netip.Addr) bool {
	if dev.xdp != nil {
		return dev.xdp.IsLocal(remote)
	}
	return neigh.IsLocal(remote.Unmap())
}

// warnOfCPUs logs the processors of the configuration that this machine has not.
func (dev *device) warnOfCPUs() {
	for _, cpu := range dev.cfg.CPUs {
		if !preflight.HasCPU(cpu) {
			dev.log.Warn("a thread of the interface runs on any processor: the machine has not the one in its table",
				"cpu", cpu, "next", "correct cpus in [[interface]]: lscpu -e lists the processors")
		}
	}
}

// hint is the next step for errors that name none.
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

// mpaConfig is the engine's form of a policy.
func mpaConfig(m *config.MPA) verbs.MPAConfig {
	return verbs.MPAConfig{
		Revision1: m.Revision == 1, NoMarkers: !m.Markers, NoCRC: !m.CRC,
		AnyCRCError: m.AnyCRCError, NoPeerToPeer: !m.PeerToPeer,
		NoRetry: !m.Retry,
	}
}

// policy is engine.Policy, by the configuration as it is now.
func (d *Daemon) policy(remote netip.Addr) (verbs.MPAConfig, bool) {
	c := d.cfg.Load()
	m := c.MPAOf(remote)
	return mpaConfig(&m), c.Allowed(remote)
}

// override is engine.Override: of what a program asks for, the keys of mpa.override count. It may always ask
// for more safety than the operator does.
func (d *Daemon) override(policy, asked verbs.MPAConfig) verbs.MPAConfig {
	may := d.cfg.Load().MPA.Override
	fixed := func(key string) bool { return !slices.Contains(may, key) }
	m := asked
	if fixed("revision") {
		m.Revision1 = policy.Revision1
	}
	if fixed("markers") {
		m.NoMarkers, m.InsistMarkers = policy.NoMarkers, policy.InsistMarkers
	}
	if fixed("crc") {
		m.NoCRC = asked.NoCRC && policy.NoCRC
	}
	if fixed("any_crc_error") {
		m.AnyCRCError = asked.AnyCRCError || policy.AnyCRCError
	}
	if fixed("peer_to_peer") {
		m.NoPeerToPeer, m.RTR = policy.NoPeerToPeer, policy.RTR
	}
	if fixed("retry") {
		m.NoRetry = policy.NoRetry
	}
	return m
}

// device returns the device of that name, the first one for an empty name, nil for none.
func (d *Daemon) device(name string) *device {
	for _, v := range d.list() {
		if name == "" || v.name == name {
			return v
		}
	}
	return nil
}

func (d *Daemon) deviceInfos() (list []control.DeviceInfo) {
	for _, v := range d.devices {
		list = append(list, v.info())
	}
	return list
}

func (d *Daemon) deviceNames() (names []string) {
	for _, v := range d.list() {
		names = append(names, v.name)
	}
	return names
}

// stale returns err when a device has not known for long what the kernel knows. It goes on with what it has,
// so this is for the watchdog only when nothing else helps any more.
func stale(err error) error {
	var s *netwatch.Stale
	if errors.As(err, &s) && time.Since(s.Since) > staleLimit {
		return err
	}
	return nil
}

// healthy returns what systemd's watchdog should know: a worker that stands still, or a device that has been
// out of date for long. It waits for nobody.
func (d *Daemon) healthy() error {
	for _, v := range d.list() {
		if v.dev.Err() != nil {
			continue // closed, and said; when all are, the daemon ends
		}
		err := v.dev.Stalled()
		if err == nil && v.xdp != nil {
			err = stale(v.xdp.Health())
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", v.name, err)
		}
	}
	return nil
}

// reloadAllow takes over who may connect to each device.
func (d *Daemon) reloadAllow(now *config.Loaded) error {
	var errs []error
	for _, n := range now.Interface {
		if v := d.device(n.Name); v != nil && v.cfg.Transport == config.TransportXDP {
			v.allow.Store(&n.Allow)
			if v.dev.Err() == nil { // else it counts when the device is opened
				errs = append(errs, v.xdp.SetAllow(n.Allow))
			}
		}
	}
	return errors.Join(errs...)
}
