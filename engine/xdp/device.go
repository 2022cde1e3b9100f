// Package xdp provides devices on AF_XDP: iWARP on the engine's own TCP, and plain TCP byte streams. Frames that no
// listener or connection claims go to the host's kernel.
package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/host/neigh"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/host/ports"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp"
)

// Config configures a device on AF_XDP.
type Config struct {
	core.Options
	// Interface is the name or an alternative name of the network interface. It may be empty only with Ifindex.
	Interface string
	// Ifindex is the index of the network interface. If an interface has it, Interface is ignored: a device that is
	// opened again follows a renamed interface. Zero means that Interface names it.
	Ifindex int
	// Queues are the receive and transmit queues to serve, with one worker each. Empty means all queues that the
	// interface has once the program is attached, except those that another program uses.
	Queues []int
	// XDPMode is the mode in which the program is attached. Zero means bpf.ModeAuto: generic on a veth that has one
	// queue or if Transmit is not TransmitXDP, and otherwise native if the driver supports it. On a veth that already
	// has a program it is not generic.
	XDPMode bpf.Mode
	// RingMode says whether frames are copied. Zero means ring.ModeAuto.
	RingMode ring.Mode
	// MTU is the MTU in bytes, at most that of the interface. Zero means that of the interface, also after a change.
	MTU int
	// RxFrames is the number of receive frames per queue, 4 KiB each. Zero means ring.DefaultRxFrames.
	RxFrames int
	// TxFrames is the number of transmit frames per queue. Zero means ring.DefaultTxSlots.
	TxFrames int
	// HugePages uses huge pages for frames, if the host has free ones.
	HugePages bool
	// CPUs are the CPUs of the workers, in the order of Queues. Workers without an entry may run on any CPU.
	CPUs []int
	// Idle says what an idle worker does. Empty means IdleAdaptive.
	Idle Idle
	// BusyPoll is how long an idle adaptive worker spins before it sleeps. Zero means DefaultBusyPoll.
	BusyPoll time.Duration
	// PollNIC makes each worker poll the NAPI instance of its queue, instead of interrupts on another CPU. It has no
	// effect if the kernel reports no instance for the socket.
	PollNIC bool
	// Consumer, if set, is called by the worker of each queue on its own thread, once per turn, and reports whether it
	// did anything. It may poll completion queues (CQ.Poll) and post, which saves a thread and the hand-over between
	// threads. QP.PostSendOn and QP.PostRecvOn cost less there than QP.PostSend and QP.PostRecv. Consumer must not
	// block or call anything else of the engine.
	Consumer func(queue int) bool
	// TCP configures the engine's TCP. Its zero value means the defaults.
	TCP TCPConfig
	// Transmit says how segments are sent. Empty means TransmitXDP.
	Transmit Transmit
	// Allow holds the prefixes of peers that listeners answer; the steering program drops segments from others. Empty
	// means all. Connections that this host opens are not restricted.
	Allow []netip.Prefix
	// IPsec configures ESP protection. Nil means none. With it all connections between two hosts use one worker.
	IPsec *IPsecConfig
	// Privileges, if set, keeps the program and spare sockets after Close, so that the interface can be reopened
	// without privileges. The devices of an interface and its VLANs need the same Privileges. The caller closes it
	// after the devices.
	Privileges *Privileges
	// Wrap, if set, decorates the port of each queue, for captures, traces and fault injection.
	Wrap func(queue int, p ring.Port) (ring.Port, error)
	// Plain, if set, returns an observer of a queue's frames before IPsec encrypts them and after it decrypts them.
	Plain func(queue int) PlainObserver
}

// Idle says how a worker waits for work.
type Idle string

// The values of Idle.
const (
	IdleAdaptive Idle = "adaptive" // spins for BusyPoll, then sleeps until there is work
	IdleSpin     Idle = "spin"     // always spins: occupies a CPU
	IdleSleep    Idle = "sleep"    // sleeps at once: the next frame waits for a wake-up by the kernel
)

// DefaultBusyPoll is how long an adaptive worker spins before it sleeps: longer than a round trip in a rack, shorter
// than a scheduler tick.
const DefaultBusyPoll = 50 * time.Microsecond

// Device is a device on AF_XDP.
type Device struct {
	*core.Device
	x *driver
}

type driver struct {
	*trunk
	shares  *Privileges // Config.Privileges, or an empty one without it; devices with the same one share the trunk
	base    core.Base
	cfg     Config
	ifindex int       // of Config.Interface
	vlan    uint16    // 0: the device has the trunk's untagged frames
	noTrunk error     // why a VLAN does not use the sockets of its parent; otherwise nil
	claims  *bpf.VLAN // claims and settings of the steering program for vlan
	neigh   *neigh.Resolver
	hops    hopUsers
	waiters hopWaiters
	local   *localaddr.Follower
	allow   atomic.Pointer[[]netip.Prefix] // Config.Allow, or its replacement by SetAllow
	// loopback carries the connections to addresses of this host.
	loopback *sockets.Driver
	ipsec    *ipsecState       // nil without Config.IPsec
	watches  []*netwatch.Watch // the device's watches of the kernel's configuration
	workers  []*worker
	mac      [6]byte
	secret   [16]byte // shared by all stacks: a connection may move between them before it is established
	owners   owners
	link     linkState
	// relays are workers without connections, for queues that the interface got after the trunk was opened. Guarded by
	// link.mu.
	relays       []*worker
	closing      atomic.Bool  // Close was called
	detached     atomic.Bool  // Detach was called while other devices shared the program: the claims are removed
	last         []QueueStats // final counters of the workers, set by Close
	lastSteering bpf.Counts   // final counters of the steering program, set by Close
}

// Open attaches the steering program to an interface in the calling thread's network namespace and starts a worker for
// each queue. A VLAN of a network card uses the program, the sockets and the threads of the card; if Privileges is that
// of another device of the card, they are shared. Frames that no listener or connection claims go to the host's kernel.
// Open needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN in a network namespace other than
// the process's. It fails with EPERM without these capabilities, ENODEV if there is no such interface, EBUSY if another
// program uses the interface or a queue that Config.Queues lists, or all queues, EINVAL for an invalid configuration,
// and ErrSpent. The text of the error says what to do.
func Open(cfg Config) (d *Device, err error) {
	if home := cfg.Privileges.space(); home != nil { // the previous namespace of the interface
		e := home.Do(func() error { d, err = openHere(cfg); return nil })
		return d, errors.Join(e, err)
	}
	return openHere(cfg)
}

// findLink returns the interface of a configuration: that of Ifindex, which may have another name now, or else that of
// Interface.
func findLink(cfg *Config) (netlink.Link, error) {
	if cfg.Ifindex != 0 {
		if nic, err := netlink.LinkByIndex(cfg.Ifindex); err == nil {
			return nic, nil
		}
	}
	return netlink.LinkByName(cfg.Interface)
}

func openHere(cfg Config) (*Device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cfg.Privileges != nil { // record the namespace, which Await uses while there is no interface
		if _, err := cfg.Privileges.namespace(); err != nil {
			return nil, err
		}
	}
	nic, err := findLink(&cfg)
	if err != nil {
		if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
			err = unix.ENODEV
		}
		return nil, fmt.Errorf("interface %q: %w (see: ip link)", cfg.Interface, err)
	}
	cfg.Interface = nic.Attrs().Name // cfg may have an alternative name
	asked := cfg.MTU
	if err := cfg.complete(nic); err != nil {
		return nil, err
	}
	b := core.NewBase(cfg.Options)
	x := &driver{base: b, cfg: cfg, link: linkState{asked: asked},
		mac: [6]byte(nic.Attrs().HardwareAddr), ifindex: nic.Attrs().Index,
		secret: core.RandomKey()}
	d := b.Start(x)
	if err := x.openInterface(nic); err != nil {
		x.Close()
		return nil, fmt.Errorf("xdp device %s: %w", cfg.Interface, err)
	}
	x.startThreads()
	if x.bond != nil {
		w, err := x.followBond()
		if err != nil {
			x.Close()
			return nil, fmt.Errorf("xdp device %s: %w", cfg.Interface, err)
		}
		x.watches = append(x.watches, w)
	}
	go b.WatchLoop()
	return &Device{d, x}, nil
}

func (c *Config) complete(nic netlink.Link) error {
	if err := c.Options.Check(); err != nil {
		return err
	}
	a := nic.Attrs()
	if len(a.HardwareAddr) != 6 {
		return fmt.Errorf("%w: interface %q is not an Ethernet interface, which AF_XDP "+
			"needs", verbs.ErrInvalid, c.Interface)
	}
	if c.MTU = cmp.Or(c.MTU, a.MTU); c.MTU > a.MTU {
		return fmt.Errorf("%w: MTU %d exceeds that of interface %q, %d (raise it: ip link set %s mtu %d)",
			verbs.ErrInvalid, c.MTU, c.Interface, a.MTU, c.Interface, c.MTU)
	}
	switch c.Idle {
	case "", IdleAdaptive:
		c.BusyPoll = cmp.Or(c.BusyPoll, DefaultBusyPoll)
	case IdleSpin:
		c.BusyPoll = -1
	case IdleSleep:
		c.BusyPoll = 0
	default:
		return fmt.Errorf("%w: unknown idle mode %q", verbs.ErrInvalid, c.Idle)
	}
	return nil
}

func (x *driver) Start(ctx context.Context, c *core.Conn, local,
	remote netip.AddrPort) error {
	if x.isLocal(remote.Addr()) {
		return x.loopback.Start(ctx, c, local, remote)
	}
	port, mtu, err := x.reserveSource(local, remote.Addr().Unmap())
	if err != nil {
		return err
	}
	if m := x.base.Options().MapPort; m != nil {
		c.Remote = m(ctx, port.Addr(), remote)
	}
	c.Port, c.Local = port, port.Addr()
	cfg := x.rdmaConfig()
	cfg.PathMTU = mtu
	w := x.firstWorker(c.Local.Addr(), c.Remote.Addr())
	c.Owner.Store(w.Shard)
	posted := w.Post(func() {
		err := verbs.ErrClosed // the worker may have ended in the meantime
		if !w.stop.Load() {
			err = x.connect(w, c, &cfg)
		}
		if err != nil {
			c.Release()
			c.Report(err)
		}
	})
	if !posted {
		port.Close()
		return verbs.ErrClosed
	}
	return nil
}

// reserveSource reserves the local address and port of a connection to remote. The address is that of local, or without
// one the source address of the route. mtu is the MTU of the route.
func (x *driver) reserveSource(local netip.AddrPort, remote netip.Addr) (port *ports.Reservation,
	mtu int, err error) {
	route, err := x.neigh.Route(remote)
	switch {
	case err != nil:
		return nil, 0, err
	case route.Local:
		return nil, 0, fmt.Errorf("%w: %v is an address of this host: streams cannot reach it",
			verbs.ErrInvalid, remote)
	case local.Addr().IsLoopback():
		return nil, 0, fmt.Errorf("%w: loopback address %v cannot reach %v", verbs.ErrInvalid,
			local.Addr(), remote)
	}
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(route.Source, local.Port())
	}
	if port, err = x.reserve(local); err != nil {
		x.neigh.ForgetRoutes() // the route may name an address that the host no longer has
	}
	return port, route.MTU, err
}

func (x *driver) reserve(at netip.AddrPort) (r *ports.Reservation, err error) {
	err = x.ns.Do(func() error {
		r, err = ports.Reserve(x.inZone(at))
		return err
	})
	return r, err
}

// connect starts the handshake of c on w. If w already has a connection with the same addresses and ports, connect
// fails with tcp.ErrTupleInUse and changes nothing.
func (x *driver) connect(w *worker, c *core.Conn, cfg *tcp.Config) error {
	t := tupleOf(c.Local, c.Remote)
	if w.stk.Find(&t) != nil {
		return tcp.ErrTupleInUse
	}
	o, err := x.newUpper(w, c)
	if err != nil {
		return err
	}
	if _, err = w.stk.Connect(t, cfg, o, core.Now()); err == nil {
		o.Endpoint.SetTOS(c.TOS())
	}
	return err
}

// Footprint returns the memory of a connection in bytes. It is that of a connection to an address of this host, which
// needs most. Other connections need 64 KiB, for their state in TCP, MPA and the stack, and for the queues of segments
// and FPDUs in flight.
func (x *driver) Footprint(accepted bool) int { return x.loopback.Footprint(accepted) }

func (x *driver) Describe() verbs.DeviceMode {
	trunk := ""
	if x.vlan != 0 {
		trunk = x.linkName()
	}
	members, senders := x.trunk.memberNames()
	return verbs.DeviceMode{
		Name: "xdp", Interface: x.ifname(), Ifindex: x.ifindex, Members: members,
		Senders: senders, XDPMode: x.att.Mode.String(), Beside: x.att.Beside,
		Transmit: string(x.cfg.Transmit), Way: x.way(), Copy: copyMode(x.socket),
		Segments: int(x.socket.Segments), MTU: x.packetMTU(), Queues: len(x.all()),
		Fallback: verbs.ErrorText(cmp.Or(x.noTrunk, x.att.NativeErr)),
		Trunk:    trunk, VLAN: int(x.vlan),
		NoZeroCopy: verbs.ErrorText(x.socket.NoZeroCopy), BusyPoll: x.polling.String(),
	}
}

func (x *driver) Do(f func() error) error { return x.ns.Do(f) }

// Detach implements core's driver. If the trunk has other devices, it only removes the claims of x, so that the others
// still receive their frames.
func (x *driver) Detach() error {
	switch {
	case x.trunk == nil:
		return nil
	case x.isAlone():
		return x.trunk.detach()
	}
	x.detached.Store(true)
	return x.claims.Close()
}
