// Package transport chooses and opens the device that a command works on: AF_XDP, the kernel's sockets, or a
// device of the daemon of this host.
package transport

import (
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

	"xwarp/engine"
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

// SocketDefault is the default of a flag for the daemon's socket, as the help shows it.
const SocketDefault = "[$" + client.SocketVariable + ", else " + client.DefaultPath + "]"

// Flags choose a device.
type Flags struct {
	Transport string // empty: the daemon's where it has the interface, else AF_XDP
	Interface string // empty: the one that the address belongs to
	Socket    string // of the daemon
	Queues    []int  // of AF_XDP; empty: all
	Ring      ring.Mode
	MPA       verbs.MPAConfig
	queues    string
}

// Register adds the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Transport, "transport", "", "\"xdp\" (AF_XDP and our own TCP, needs root), "+
		"\"kernel\" (the kernel's TCP) or \"daemon\" (xwarpd's device, for any user of its group) "+
		"(default: daemon where xwarpd runs and has the interface, else xdp)")
	set.StringVar(&f.Interface, "interface", "", "network interface for xdp or of the daemon "+
		"(default: the one that the address belongs to)")
	set.StringVar(&f.queues, "queues", "", "receive `queues` that xdp serves, as in "+
		"0-3,6 (default: all)")
	set.TextVar(&f.Ring, "ring-mode", ring.ModeAuto, "how frames reach memory with xdp: "+
		"zero-copy, copy, or auto: zero-copy where the driver has it")
	set.StringVar(&f.Socket, "socket", "", "control socket of the daemon "+SocketDefault)
}

// Check returns the error of the flags, as a UsageError.
func (f *Flags) Check() error {
	if err := f.check(); err != nil {
		return UsageError{err}
	}
	return nil
}

func (f *Flags) check() (err error) {
	if f.Transport != "" && !slices.Contains(Names, f.Transport) {
		return fmt.Errorf("--transport is %q, but it is xdp, kernel or daemon", f.Transport)
	}
	if f.Transport == Kernel && f.Interface != "" {
		return errors.New("--interface is for xdp and the daemon: the kernel finds its interface itself")
	}
	if f.Queues, err = ranges.Expand(f.queues, "queue", math.MaxUint16); err != nil {
		return fmt.Errorf("--queues %w", err)
	}
	for name, given := range map[string]bool{
		"queues": len(f.Queues) > 0, "ring-mode": f.Ring != ring.ModeAuto,
	} {
		switch {
		case !given:
		case f.Transport == "":
			f.Transport = XDP
		case f.Transport != XDP:
			return fmt.Errorf("--%s is for --transport=xdp: the daemon's stands in its file", name)
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

// Finder returns the interface that an address belongs to, or the way to it. ErrWhich: to none in particular.
type Finder func() (string, error)

// ErrWhich is an address that belongs to no interface in particular.
var ErrWhich = errors.New("which interface?")

// Open opens the device. find names the interface when the user did not.
func (f *Flags) Open(log *slog.Logger, find Finder) (verbs.Device, error) {
	c, err := f.choose(find)
	switch {
	case err != nil:
		return nil, err
	case c.daemon != nil:
		return c.daemon, nil
	}
	o := engine.Options{Log: log, MPA: f.MPA}
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
	Interface string // of XDP and Daemon
	daemon    verbs.Device
	unusable  error // why not the daemon, where there is one
}

// Choose says which device Open would open.
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
	var unknown error // which interface that is
	if c.Interface == "" {
		if c.Interface, unknown = find(); unknown != nil && !errors.Is(unknown, ErrWhich) {
			return c, unknown
		}
	}
	isLocal := unknown == nil && c.Interface == "lo"
	if f.Transport != XDP {
		err = f.openDaemon(&c)
		if isLocal && c.daemon == nil { // each device of a daemon reaches this host
			c.Interface = ""
			err = f.openDaemon(&c)
		}
		if c.daemon != nil || f.Transport == Daemon || err != nil {
			return c, err
		}
	}
	if isLocal {
		unknown = errors.New("the address is one of this host, and AF_XDP does not see what " +
			"stays inside: use --transport=kernel")
	}
	return c, unknown
}

// openDaemon opens the daemon's device of c's interface, or without one the daemon's first. Without an error and
// without a device xdp may do.
func (f *Flags) openDaemon(c *Choice) error {
	d, err := client.OpenConfig(client.Config{Path: f.Socket, Device: c.Interface})
	var refusal *control.Error
	switch {
	case err == nil:
		c.Name, c.Interface, c.daemon = Daemon, d.Transport().Interface, &asking{d, f.MPA}
		return nil
	case f.Transport == Daemon:
		return err
	case errors.As(err, &refusal) && refusal.Code != control.CodeUnknown:
		return fmt.Errorf("%w (--transport=xdp and --transport=kernel go without the daemon)", err)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED):
		c.unusable = err
	}
	return nil
}

// Explain adds to an error of opening AF_XDP the alternatives to AF_XDP.
func (c *Choice) Explain(err error) error {
	switch {
	case err == nil || c.Name != XDP:
		return err
	case os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission):
		// The libraries' own texts name limits that are not the cause.
		err = fmt.Errorf("%s: %w: AF_XDP needs root (sudo), --transport=kernel does not",
			c.Interface, errNotPermitted)
	}
	if c.unusable != nil {
		err = fmt.Errorf("%w; and the daemon cannot be used: %w", err, c.unusable)
	}
	return err
}

var errNotPermitted = errors.New("operation not permitted")

// asking is a daemon's device whose connections have the flags' settings. Without any, the daemon's policy counts.
type asking struct {
	*client.Device
	mpa verbs.MPAConfig
}

func (a *asking) ask(own **verbs.MPAConfig) {
	if *own == nil && a.mpa != (verbs.MPAConfig{}) {
		*own = &a.mpa
	}
}

// Dial implements verbs.Device.
func (a *asking) Dial(ctx context.Context, remote netip.AddrPort, qp verbs.QP,
	cfg verbs.DialConfig) error {
	a.ask(&cfg.MPA)
	return a.Device.Dial(ctx, remote, qp, cfg)
}

// Listen implements verbs.Device.
func (a *asking) Listen(addr netip.AddrPort, cfg verbs.ListenConfig) (verbs.Listener, error) {
	a.ask(&cfg.MPA)
	return a.Device.Listen(addr, cfg)
}
