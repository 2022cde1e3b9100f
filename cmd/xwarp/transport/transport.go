// Package transport chooses and opens the device of a command: AF_XDP, kernel sockets, or a device of the daemon on
// this host.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/ranges"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// The transports.
const (
	XDP    = "xdp"
	Kernel = "kernel"
	Daemon = "daemon"
)

// Names are the values of --transport.
var Names = []string{XDP, Kernel, Daemon}

// SocketDefault is the default of a flag for the daemon's socket, as shown in the help.
const SocketDefault = "[$" + client.SocketVariable + ", else " + client.DefaultPath + "]"

// Flags select a device.
type Flags struct {
	Transport string // empty: the daemon if it has the interface, else AF_XDP
	Interface string // empty: the interface of the address
	Socket    string // control socket of the daemon
	Queues    []int  // of AF_XDP; empty: all
	Ring      ring.Mode
	MPA       verbs.MPAConfig
	DSCP      int
	queues    string
}

// Register adds the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Transport, "transport", "", "xdp (AF_XDP and user-space TCP, needs root), "+
		"kernel (kernel TCP) or daemon (a device of xwarpd, needs membership in its group) "+
		"(default: daemon if xwarpd runs and has the interface, else xdp)")
	set.StringVar(&f.Interface, "interface", "", "network interface, for xdp and daemon "+
		"(default: that of the address)")
	set.StringVar(&f.queues, "queues", "", "receive `queues` to serve with xdp, such as "+
		"0-3,6 (default: all)")
	set.TextVar(&f.Ring, "ring-mode", ring.ModeAuto, "AF_XDP mode with xdp: zero-copy, copy, or "+
		"auto (zero-copy if the driver supports it)")
	set.IntVar(&f.DSCP, "dscp", 0,
		"class of the packets sent (DSCP), 1 to 63 (default: that of xwarpd's configuration, or 0)")
	set.StringVar(&f.Socket, "socket", "", "control socket of xwarpd "+SocketDefault)
}

// Check validates the flags and sets Queues. If a flag needs AF_XDP, it selects that transport. Errors are UsageErrors.
func (f *Flags) Check() error {
	if err := f.check(); err != nil {
		return UsageError{err}
	}
	return nil
}

func (f *Flags) check() (err error) {
	if f.Transport != "" && !slices.Contains(Names, f.Transport) {
		return fmt.Errorf("--transport %q: need xdp, kernel or daemon", f.Transport)
	}
	if f.Transport == Kernel && f.Interface != "" {
		return errors.New("--interface does not apply to --transport=kernel: the kernel routes")
	}
	if f.Queues, err = ranges.Expand(f.queues, "queue", math.MaxUint16); err != nil {
		return fmt.Errorf("--queues %w", err)
	}
	if f.DSCP < 0 || f.DSCP > verbs.MaxDSCP {
		return fmt.Errorf("--dscp %d: need 0 to %d: the TOS byte or traffic class divided by 4",
			f.DSCP, verbs.MaxDSCP)
	}
	for name, given := range map[string]bool{
		"queues": len(f.Queues) > 0, "ring-mode": f.Ring != ring.ModeAuto,
	} {
		switch {
		case !given:
		case f.Transport == "":
			f.Transport = XDP
		case f.Transport != XDP:
			return fmt.Errorf("--%s needs --transport=xdp; for xwarpd set it in its configuration",
				name)
		}
	}
	return nil
}

// Switch adds a boolean flag that sets *v to on or off.
func Switch[T any](set *pflag.FlagSet, v *T, on, off T, name, usage string) {
	set.BoolFunc(name, usage, func(text string) error {
		yes, err := strconv.ParseBool(text)
		if *v = off; yes {
			*v = on
		}
		return err
	})
}

// Finder returns the interface of an address or of the route to it. The error is ErrAmbiguousInterface for a wildcard
// address.
type Finder func() (string, error)

// ErrAmbiguousInterface means that the address does not determine an interface.
var ErrAmbiguousInterface = errors.New("cannot choose an interface")

// Open opens the device. find determines the interface if the flags do not.
func (f *Flags) Open(log *slog.Logger, find Finder) (verbs.Device, error) {
	c, err := f.choose(find)
	switch {
	case err != nil:
		return nil, err
	case c.daemon != nil:
		return c.daemon, nil
	}
	o := sockets.Options{Log: log, MPA: f.MPA, DSCP: f.DSCP}
	if c.Name == Kernel {
		d, err := sockets.Open(sockets.Config{Options: o})
		return verbs.Opened(d, c.Explain(err))
	}
	d, err := xdp.Open(xdp.Config{Options: o, Interface: c.Interface, Transmit: xdp.TransmitAuto,
		Queues: f.Queues, RingMode: f.Ring})
	return verbs.Opened(d, c.Explain(err))
}

// Choice is a transport and its interface.
type Choice struct {
	Name      string // XDP, Kernel or Daemon
	Interface string // for XDP and Daemon
	daemon    verbs.Device
	unusable  error // why a daemon that exists cannot be used
}

// Choose returns the choice that Open would make.
func (f *Flags) Choose(find Finder) (Choice, error) {
	c, err := f.choose(find)
	if c.daemon != nil {
		c.daemon.Close()
		c.daemon = nil
	}
	return c, err
}

func (f *Flags) choose(find Finder) (c Choice, err error) {
	if f.Transport == Kernel {
		return Choice{Name: Kernel}, nil
	}
	c = Choice{Name: XDP, Interface: f.Interface}
	var unknown error // the interface could not be determined
	if c.Interface == "" {
		c.Interface, unknown = find()
		if unknown != nil && !errors.Is(unknown, ErrAmbiguousInterface) {
			return c, unknown
		}
	}
	isLocal := unknown == nil && c.Interface == "lo"
	if f.Transport != XDP {
		err = f.openDaemon(&c)
		if isLocal && c.daemon == nil { // any device of a daemon reaches this host
			c.Interface = ""
			err = f.openDaemon(&c)
		}
		if c.daemon != nil || f.Transport == Daemon || err != nil {
			return c, err
		}
	}
	if isLocal {
		unknown = errors.New("the address is local, and AF_XDP does not see local traffic: " +
			"use --transport=kernel")
	}
	return c, unknown
}

// openDaemon opens the daemon's device for c.Interface, or its first device if that is empty. If it sets no device and
// returns no error, the caller may use xdp.
func (f *Flags) openDaemon(c *Choice) error {
	d, err := client.OpenConfig(client.Config{Path: f.Socket, Device: c.Interface})
	var refusal *control.Error
	switch {
	case err == nil:
		c.Name, c.Interface = Daemon, d.Transport().Interface
		c.daemon = &configuredDevice{d, f.MPA, f.DSCP}
		return nil
	case f.Transport == Daemon:
		return err
	case errors.As(err, &refusal) && refusal.Code != control.CodeUnknown:
		return fmt.Errorf("%w (--transport=xdp and --transport=kernel do not use the daemon)", err)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED):
		c.unusable = err
	}
	return nil
}

// Explain adds alternatives to an error from opening AF_XDP.
func (c *Choice) Explain(err error) error {
	switch {
	case err == nil || c.Name != XDP:
		return err
	case os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission):
		// The texts of the libraries blame resource limits, which are not the cause.
		err = fmt.Errorf("%s: %w: AF_XDP needs root (sudo); --transport=kernel does not",
			c.Interface, errNotPermitted)
	}
	if c.unusable != nil {
		err = fmt.Errorf("%w; the daemon cannot be used either: %w", err, c.unusable)
	}
	return err
}

var errNotPermitted = errors.New("operation not permitted")

// configuredDevice is a daemon's device that applies the MPA flags and --dscp to its connections. Without flags the
// daemon's policy applies.
type configuredDevice struct {
	*client.Device
	mpa  verbs.MPAConfig
	dscp int
}

// ask sets *own to the configuration from the MPA flags, unless *own is already set or no flag asks for anything.
func (a *configuredDevice) ask(own **verbs.MPAConfig) {
	if *own == nil && a.mpa != (verbs.MPAConfig{}) {
		*own = &a.mpa
	}
}

// Dial implements verbs.Device. What cfg itself sets for MPA and DSCP takes precedence over the flags.
func (a *configuredDevice) Dial(ctx context.Context, remote netip.AddrPort, qp verbs.QP,
	cfg verbs.DialConfig) error {
	a.ask(&cfg.MPA)
	cfg.DSCP = cmp.Or(cfg.DSCP, a.dscp)
	return a.Device.Dial(ctx, remote, qp, cfg)
}

// Listen implements verbs.Device. What cfg itself sets for MPA and DSCP takes precedence over the flags.
func (a *configuredDevice) Listen(addr netip.AddrPort, cfg verbs.ListenConfig) (verbs.Listener,
	error) {
	a.ask(&cfg.MPA)
	cfg.DSCP = cmp.Or(cfg.DSCP, a.dscp)
	return a.Device.Listen(addr, cfg)
}
