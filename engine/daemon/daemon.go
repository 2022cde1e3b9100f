// Package daemon implements xwarpd: devices, exported memory, and the control socket through which unprivileged
// programs of this host use them.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/daemon/export"
	"xwarp/engine/daemon/session"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/plain"
	"xwarp/tcp/tick"
)

// Daemon is a running xwarpd. README.md describes ownership.
type Daemon struct {
	// set by New, then constant
	log             *slog.Logger
	level           *slog.LevelVar // nil: a reload does not change the level
	pid             int
	since           time.Time
	started         *config.Loaded // the configuration of New
	version         string
	opener          device.Opener
	exports         *export.Set
	users           *budget.Users
	rendezvous      *session.RendezvousService
	peers           *budget.Peers
	mapper          *control.Mapper // maps the memory of programs
	socket          *unixListener
	admin           *unixListener // of the operator socket
	sysfs           *sysfsTree    // nil if there is none
	tenants         []*unixListener
	tenantDirectory string
	webError        error                          // why New could not open the HTTP server; nil: no error
	reload          func() (*config.Loaded, error) // Options.Load

	// may be used by any goroutine
	cfg          atomic.Pointer[config.Loaded]
	pending      atomic.Pointer[[]string] // keys that differ from started and need a restart; nil: no reload yet
	events       *session.Events
	stopEvents   func()
	count        counts
	uidOwners    subordinateUIDs // which user owns a UID
	refuser      refuser
	confirmation confirmation
	running      sync.WaitGroup // counts the sessions with unreleased objects
	reloading    sync.Mutex     // held by ReloadConfig; taken before mu

	mu sync.Mutex
	// guarded by mu
	devices     []*device.Device
	sessions    map[uint64]*session.Session
	lastSession uint64 // number of the latest session
	stopping    bool
	web         *webServer // nil if none is configured or it is not open yet
	keepsRights bool       // DropRights was called, and waits until all devices are open
}

// counts are the counters of the daemon.
type counts struct {
	SessionsEnded, SessionsRefused, Defects atomic.Uint64
	session.Counters
}

// Options are settings that are not in the configuration.
type Options struct {
	Log     *slog.Logger   // nil: no log
	Level   *slog.LevelVar // of Log, for reloads; nil: the level does not change
	Version string         // of the program, for Snapshot
	// Private is for a daemon beside others on one host. It listens for queue pairs of ibv_modify_qp on any free port
	// instead of rendezvous.Port, so these connect only to others of the same daemon.
	Private bool
	// SSHAddress is the local address of the SSH session in which an operator starts the daemon by hand. The zero Addr
	// means none.
	SSHAddress netip.Addr
	After      func(time.Duration) <-chan time.Time // timer of the confirmation; nil: time.After
	// Load reads the configuration for ReloadConfig. It may leave out invalid exports. Nil means that there is no file.
	Load func() (*config.Loaded, error)
	// FollowSAs, if set, replaces xfrm.Follow in tests.
	FollowSAs func(xfrm.Options) (xfrm.Source, error)
}

// New opens the devices, exports, HTTP server and control sockets of a configuration. Devices are opened in the network
// namespace of the calling thread.
func New(cfg *config.Loaded, o Options) (*Daemon, error) {
	d := &Daemon{level: o.Level, version: o.Version, pid: os.Getpid(),
		since: time.Now(), sessions: map[uint64]*session.Session{}, mapper: control.NewMapper(),
		users:     budget.NewUsers(processors, uptime),
		uidOwners: subordinateUIDs{file: subordinateFile}, reload: o.Load,
		events: session.NewEvents()}
	ctx, stop := context.WithCancel(context.Background())
	d.stopEvents = stop
	go d.events.NotifyLoop(ctx)
	d.rendezvous = session.NewRendezvousService(d.opener.AllowsDirect, o.Private)
	log := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	d.log = slog.New(&eventLog{next: log.Handler(), events: d.events})
	d.started = cfg
	d.cfg.Store(cfg)
	d.peers = budget.NewPeers(func(a netip.Addr) budget.PeerRule {
		return device.PeerRule(d.cfg.Load(), a)
	})
	d.opener.Config, d.opener.Peers, d.opener.Log = d.cfg.Load, d.peers, d.log
	d.opener.FollowSAs = o.FollowSAs
	d.exports = export.NewSet(daemonAPI{d}, d.log)
	d.setLevel()
	d.setUserBounds(cfg)
	err := d.start(cfg)
	if err == nil {
		err = d.awaitConfirmation(cfg, &o)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) start(cfg *config.Loaded) error {
	if err := cfg.RequireInterface(); err != nil {
		return err
	}
	// This check is first: a daemon that already runs also holds the devices, ports and addresses, so later errors
	// would hide the cause.
	for _, path := range []string{cfg.Daemon.OperatorSocket(), cfg.Daemon.Socket} {
		if err := checkUnserved(path); path != "" && err != nil {
			return fmt.Errorf("control socket %s: %w", path, err)
		}
	}
	d.warnRemoved(cfg)
	if err := device.DisableCore(cfg); err != nil {
		return fmt.Errorf("cannot disable core dumps, which could contain IPsec keys: %w", err)
	}
	if err := d.openDevices(cfg); err != nil {
		return err
	}
	for _, c := range cfg.Export {
		d.exports.Start(c) // an export that cannot be opened yet is retried later
	}
	if d.webError = d.startWeb(cfg); d.webError != nil {
		d.log.Error("cannot serve metrics: retrying", "error", d.webError,
			"next", "see the error; xwarp config check tests a start on this host")
	}
	if cfg.Daemon.Socket == "" {
		return nil
	}
	if err := d.mapper.Err(); err != nil {
		d.log.Error("cannot serve programs: this kernel cannot guard shared memory by userfaultfd",
			"error", err)
	}
	var err error
	if d.socket, err = listenControl(cfg.Daemon.Socket, programsAccess(&cfg.Daemon)); err != nil {
		return err
	}
	d.log.Info("listening on the control socket", "path", cfg.Daemon.Socket)
	if d.sysfs, err = openSysfs(cfg.Daemon.Socket); err == nil {
		err = d.writeSysfs()
	}
	if err != nil {
		d.log.Warn("cannot write the files that replace /sys/class/infiniband: ibstat may find no device", "error", err)
	}
	go d.acceptPrograms(d.socket, entrance{})
	if path := cfg.Daemon.OperatorSocket(); path != "" {
		if d.admin, err = listenControl(path, operatorAccess); err != nil {
			return err
		}
		go d.acceptPrograms(d.admin, entrance{operator: true})
		d.log.Info("listening on the operator socket", "path", path)
	}
	return d.startTenants(&cfg.Tenants)
}

// warnRemoved logs the keys in a configuration that the previous release had and this one has not.
func (d *Daemon) warnRemoved(cfg *config.Loaded) {
	for _, what := range cfg.Removed {
		d.log.Warn("the configuration has a removed key", "next", what)
	}
}

// openDevices opens the devices of a configuration. It fails if it opens none, unless an interface is missing.
// watchDevice opens the others later.
func (d *Daemon) openDevices(cfg *config.Loaded) error {
	var errs []error
	serves := false
	for _, c := range cfg.Interface {
		v, err := d.opener.Open(c, nil)
		d.devices = append(d.devices, v)
		serves = serves || err == nil || errors.Is(err, unix.ENODEV)
		errs = append(errs, err)
	}
	if !serves {
		return errors.Join(errs...)
	}
	for i, v := range d.devices {
		if v.NeverOpened {
			d.logOf(v).Error("cannot open device: retrying; other devices are not affected",
				"error", errs[i], "next", "see the error; xwarp status shows the device")
		}
	}
	return nil
}

// DropRights drops the capabilities that a running daemon does not need. While a device is not open it drops none, and
// replace calls it again when a device opens.
func (d *Daemon) DropRights() error {
	d.mu.Lock()
	absent := slices.ContainsFunc(d.devices, func(v *device.Device) bool { return v.NeverOpened })
	d.keepsRights = absent
	d.mu.Unlock()
	if absent {
		return nil
	}
	return DropRights(&d.cfg.Load().Config)
}

// Run serves until ctx is done or a lost device ends the daemon, and then calls Close. Without a required confirmation
// in time it closes everything without a grace period, and returns an error that wraps ErrUnconfirmed.
func (d *Daemon) Run(ctx context.Context) error {
	stop := d.watchdog()
	defer stop()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	for _, v := range d.deviceList() {
		go d.watchDevice(ctx, v, lost)
	}
	go d.exports.ReviveLoop(ctx)
	if d.webError != nil {
		go d.retryWeb(ctx)
	}
	go device.Watch(ctx, d.deviceList)
	if d.sysfs != nil {
		go d.sysfsLoop(ctx)
	}
	notify("READY=1\nSTATUS=" + d.status())
	late := d.confirmation.waitForDeadline(ctx)
	notify("STOPPING=1\nSTATUS=closing connections")
	if late != nil {
		return d.endUnconfirmed(late)
	}
	d.log.Info("stopping")
	if cause := context.Cause(ctx); errors.Is(cause, errNoDevice) || errors.Is(cause, ErrRestart) {
		return errors.Join(cause, d.Close()) // the caller logs it
	}
	return d.Close()
}

func (d *Daemon) status() string {
	var lost []string
	list := d.deviceList()
	for _, v := range list {
		if v.Core.Err() != nil {
			lost = append(lost, v.Name)
		}
	}
	text := plain.Count(len(list), "device") + ", " + plain.Count(d.exports.Len(), "export")
	if len(lost) > 0 {
		text += fmt.Sprintf("; lost or missing devices: %v", lost)
	}
	return text
}

func (d *Daemon) allSessions() []*session.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.sessions), func(a, b *session.Session) int {
		return int(a.ID()) - int(b.ID())
	})
}

// setUserBounds divides the resources of the host between users and tenants.
func (d *Daemon) setUserBounds(cfg *config.Loaded) {
	tenant := cfg.TenantLimits()
	for _, s := range d.users.SetBounds(budget.Bounds{Host: budget.HostBounds(),
		Sessions: cfg.Daemon.Clients, Tenants: cfg.Tenants.Count, Tenant: tenant.Amounts()}) {
		d.log.Warn("tenant limits reduced: this host cannot provide them for every tenant",
			"kind", s.Kind.String(), "each", s.Each, "next", s.Kind.Remedy())
	}
}

func (d *Daemon) setLevel() {
	if d.level != nil {
		var l slog.Level
		l.UnmarshalText([]byte(d.cfg.Load().Daemon.LogLevel)) // validated when it was read
		d.level.Set(l)
	}
}

// watchdog tells systemd periodically that the workers are alive, if the unit has a watchdog. stop ends that.
func (d *Daemon) watchdog() (stop func()) {
	every := watchdogInterval()
	ctx, cancel := context.WithCancel(context.Background())
	if every > 0 {
		go func() {
			for tick := time.Tick(every / 2); ; {
				if err := d.healthy(); err == nil {
					notify("WATCHDOG=1")
				} else {
					d.log.Error("cannot notify the systemd watchdog", "error", err)
				}
				select {
				case <-ctx.Done():
					return
				case <-tick:
				}
			}
		}()
	}
	return cancel
}

var began = time.Now()

// uptime is a monotonic clock.
func uptime() tick.Time { return tick.Time(time.Since(began)) }

// device returns the device of that name, or nil.
func (d *Daemon) device(name string) *device.Device { return device.Find(d.deviceList(), name) }

// logOf returns the log of a device.
func (d *Daemon) logOf(v *device.Device) *slog.Logger { return d.log.With("device", v.Name) }

// healthy returns an error if the watchdog must restart the daemon.
func (d *Daemon) healthy() error {
	for _, v := range d.deviceList() {
		if err := v.Healthy(); err != nil {
			return err
		}
	}
	return nil
}

// reloadDevices applies the allow lists and IPsec tables of a configuration to the devices.
func (d *Daemon) reloadDevices(now *config.Loaded) error {
	var errs []error
	for _, n := range now.Interface {
		if v := d.device(n.Name); v != nil {
			errs = append(errs, v.SetAllow(n.Allow), v.SetIPsec(n.IPsec))
		}
	}
	return errors.Join(errs...)
}
