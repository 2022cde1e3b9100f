package ring

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linux implements kernel with an AF_XDP socket.
type linux struct {
	fd   int
	maps [][]byte // everything to unmap
	fds  [2]unix.PollFd

	// Set by Socket.BusyPoll.
	polls     bool
	zeroCopy  bool
	deferrals uint32
}

// Open creates a socket for cfg.Queue of device cfg.Ifindex in the network namespace of the calling thread. It needs
// CAP_NET_RAW and Linux 6.6. The socket receives nothing until its Fd is in the XSKMAP of an XDP program of the device,
// and frames of several chunks only from a program that supports fragments.
func Open(cfg Config) (*Socket, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	nic, err := netlink.LinkByIndex(c.Ifindex)
	if err != nil {
		return nil, fmt.Errorf("ring: device %d: %w (is it in this network namespace?)", c.Ifindex,
			err)
	}
	d := device{mtu: nic.Attrs().MTU}
	d.driver, d.driverErr = QueryDriver(c.Ifindex)
	s, err := d.negotiate(&c, openLinux)
	if err != nil {
		return nil, fmt.Errorf("ring: %s queue %d: %w", nic.Attrs().Name, c.Queue, err)
	}
	return s, nil
}

// openLinux creates a socket and binds it in the way b.
func openLinux(c Config, b binding) (*Socket, error) {
	fd, err := c.NewSocket()
	if err != nil {
		return nil, err
	}
	k := &linux{fd: fd}
	s, err := k.prepare(c, b)
	if err == nil {
		err = k.bind(&c, b)
	}
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	var opt uint32
	if err := k.getsockopt(unix.XDP_OPTIONS, unsafe.Pointer(&opt), unsafe.Sizeof(opt)); err == nil {
		s.info.ZeroCopy = opt&unix.XDP_OPTIONS_ZEROCOPY != 0
	}
	return s, nil
}

// prepare does everything to create a socket except bind it. It fills the fill ring, because a zero-copy driver takes
// chunks from it in bind(2). A driver that finds none receives nothing until a later wake-up raises the interrupt of
// the receive queue. igb raises the wrong one if the receive and transmit queue have separate interrupts.
func (k *linux) prepare(c Config, b binding) (*Socket, error) {
	a, err := k.setUp(&c, b)
	if err != nil {
		return nil, err
	}
	a.budget, a.lateTx = k.setBusyPoll(&c)
	return newSocket(c, k, a), nil
}

// NewSocket creates an unbound AF_XDP socket. It needs CAP_NET_RAW, which later steps do not.
func NewSocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("AF_XDP socket: %w%s", err, SocketHint(err, "CONFIG_XDP_SOCKETS"))
	}
	return fd, nil
}

// SocketHint returns what to do about an error of socket(2) for a family that needs CAP_NET_RAW and a kernel option, or
// "".
func SocketHint(err error, option string) string {
	switch err {
	case unix.EPERM, unix.EACCES:
		return " (needs CAP_NET_RAW: run it as root)"
	case unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT:
		return " (needs a kernel with " + option + ")"
	case unix.EMFILE:
		return " (raise the limit: ulimit -n, or LimitNOFILE= in the unit)"
	case unix.ENFILE:
		return " (raise the limit of the host: sysctl fs.file-max)"
	case unix.ENOMEM, unix.ENOBUFS:
		return " (free memory of the host: free -m)"
	}
	return ""
}

// setUp registers the UMEM and maps the four rings.
func (k *linux) setUp(c *Config, b binding) (a area, err error) {
	a.segments, a.shift, a.minRxBytes = b.segments, b.shift(), b.minRxBytes()
	if a.umem, a.hugePage, err = k.mapUMEM(c, a.shift); err != nil {
		return a, err
	}
	if err = k.register(a.umem, 1<<a.shift); err != nil {
		return a, err
	}
	for _, r := range []struct {
		opt  int
		name string
		size uint32
	}{
		{unix.XDP_UMEM_FILL_RING, "fill", c.FillSize}, {unix.XDP_UMEM_COMPLETION_RING, "completion",
			c.CompSize},
		{unix.XDP_RX_RING, "receive", c.RxSize}, {unix.XDP_TX_RING, "transmit", c.TxSize},
	} {
		if err = unix.SetsockoptInt(k.fd, unix.SOL_XDP, r.opt, int(r.size)); err != nil {
			return a, fmt.Errorf("%s ring of %d entries: %w", r.name, r.size, err)
		}
	}
	var off unix.XDPMmapOffsets
	if err = k.getsockopt(unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off),
		unsafe.Sizeof(off)); err != nil {
		return a, fmt.Errorf("XDP_MMAP_OFFSETS: %w", err)
	}
	var errs [4]error
	a.fill, errs[0] = mapRing[uint64](k, unix.XDP_UMEM_PGOFF_FILL_RING, &off.Fr, c.FillSize)
	a.comp, errs[1] = mapRing[uint64](k, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &off.Cr, c.CompSize)
	a.rx, errs[2] = mapRing[unix.XDPDesc](k, unix.XDP_PGOFF_RX_RING, &off.Rx, c.RxSize)
	a.tx, errs[3] = mapRing[unix.XDPDesc](k, unix.XDP_PGOFF_TX_RING, &off.Tx, c.TxSize)
	return a, errors.Join(errs[:]...)
}

// mapUMEM maps populated anonymous memory, in huge pages if requested and available.
func (k *linux) mapUMEM(c *Config, shift uint8) (umem []byte, huge bool, err error) {
	const hugePage = 2 << 20
	size := int(c.Frames()) << shift
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_POPULATE
	if c.HugePages {
		whole := (size + hugePage - 1) &^ (hugePage - 1)
		m, err := unix.Mmap(-1, 0, whole, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_HUGETLB)
		if err == nil {
			k.maps = append(k.maps, m)
			return m[:size:size], true, nil
		}
	}
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, false, fmt.Errorf("mapping %d bytes of UMEM: %w (lower RxFrames or TxSlots)",
			size, err)
	}
	k.maps = append(k.maps, m)
	return m, false, nil
}

// register registers the UMEM with the kernel. If the limit of locked memory is too low, register raises it as far as
// allowed and tries once more.
func (k *linux) register(umem []byte, chunk uint32) error {
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&umem[0]))), Len: uint64(len(umem)),
		Size: chunk}
	try := func() error {
		return k.setsockopt(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
	}
	err, hint := try(), ""
	var raised error
	if errors.Is(err, unix.ENOBUFS) {
		raised = RaiseMemlock()
		err, hint = try(), " (RLIMIT_MEMLOCK is too low: raise it, or give CAP_IPC_LOCK)"
	}
	if err != nil {
		return errors.Join(fmt.Errorf("registering %d bytes of UMEM: %w%s", len(umem), err, hint),
			raised)
	}
	return nil
}

// RaiseMemlock removes the limit of locked memory, or raises it to the hard limit if that is not permitted. A process
// that opens sockets without privileges must call RaiseMemlock before it drops them.
func RaiseMemlock() error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil {
		return fmt.Errorf("reading RLIMIT_MEMLOCK: %w", err)
	}
	var err error
	for _, n := range []uint64{unix.RLIM_INFINITY, now.Max} {
		if err = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: n}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("raising RLIMIT_MEMLOCK to %d: %w", now.Max, err)
}

// mapRing maps one ring of the socket.
func mapRing[T any](k *linux, pgoff int64, off *unix.XDPRingOffset, size uint32) (shared[T],
	error) {
	var zero T
	n := off.Desc + uint64(size)*uint64(unsafe.Sizeof(zero))
	m, err := unix.Mmap(k.fd, pgoff, int(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return shared[T]{}, fmt.Errorf("mapping a ring of %d entries: %w", size, err)
	}
	k.maps = append(k.maps, m)
	word := func(at uint64) *uint32 { return (*uint32)(unsafe.Pointer(&m[at])) }
	return shared[T]{
		prod: word(off.Producer), cons: word(off.Consumer), flags: word(off.Flags),
		desc: unsafe.Slice((*T)(unsafe.Pointer(&m[off.Desc])), size),
	}, nil
}

// bind binds to the queue. It retries for c.BindTimeout after EBUSY, which is normal for some 20 ms after another
// socket of the queue was closed.
func (k *linux) bind(c *Config, b binding) error {
	sa := unix.SockaddrXDP{Flags: b.flags(), Ifindex: uint32(c.Ifindex), QueueID: c.Queue}
	var err error
	for left := c.BindTimeout; ; left -= bindRetry {
		if err = unix.Bind(k.fd, &sa); !errors.Is(err, unix.EBUSY) || left <= 0 {
			break
		}
		time.Sleep(bindRetry)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("bind: %w (another AF_XDP socket uses the queue; waited %v)", err,
			c.BindTimeout)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("bind: %w (the interface is down: ip link set it up)", err)
	case errors.Is(err, unix.EINVAL) && !b.zeroCopy:
		return fmt.Errorf("bind: %w (is there such a queue, and a kernel of 6.6 or later, for "+
			"XDP_USE_SG?)", err)
	}
	return fmt.Errorf("bind: %w", err)
}

// setBusyPoll asks the kernel for transmit batches of more than 32 packets, and for a send buffer of all slots. Both
// may fail without harm. It returns the maximum number of packets per batch. Kernels before 6.17 cannot change it. For
// these late is true: in copy mode they read the producer index, and move the consumer index only after they have taken
// all descriptors up to there.
func (k *linux) setBusyPoll(c *Config) (budget uint32, late bool) {
	// The kernel charges an skb of one chunk with less than two chunks, and doubles the value that is set here.
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
		int(c.TxSlots*c.TxSlot)*ChunkSize)
	const kernelDefault = 32
	budget = min(c.KickBudget, c.TxSize)
	if unix.SetsockoptInt(k.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, int(budget)) != nil {
		return kernelDefault, true
	}
	return budget, false
}

func (k *linux) setsockopt(opt int, v unsafe.Pointer, n uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(k.fd), unix.SOL_XDP, uintptr(opt),
		uintptr(v), n, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (k *linux) getsockopt(opt int, v unsafe.Pointer, n uintptr) error {
	size := uint32(n)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(k.fd), unix.SOL_XDP, uintptr(opt),
		uintptr(v), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
