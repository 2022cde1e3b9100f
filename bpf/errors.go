package bpf

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var (
	// ErrClaimed is returned for a listener, flow or SA that exists already.
	ErrClaimed = errors.New("already claimed")

	// ErrNotClaimed is returned for the removal of a listener, flow or SA that does not exist.
	ErrNotClaimed = errors.New("not claimed")

	// ErrFull is returned if a map has reached its size in [Options].
	ErrFull = errors.New("table full")

	// ErrClosed is returned by methods after [Steering.Close]. It wraps net.ErrClosed.
	ErrClosed = fmt.Errorf("bpf: steering: %w", net.ErrClosed)
)

// ForeignProgramError is returned if an interface has an XDP program of another owner. A Steering never replaces it.
type ForeignProgramError struct {
	Interface string
	Ifindex   int
	ID        uint32 // of the program; 0 if the kernel reports several programs
	Name      string // of the program, at most 15 bytes; empty if it cannot be read
	Mode      Mode   // in which the program is attached; ModeAuto if the kernel reports several programs
}

// Error names the program and the commands that show it.
func (e *ForeignProgramError) Error() string {
	who := "several XDP programs"
	if e.ID != 0 {
		who = fmt.Sprintf("XDP program %q (id %d, %s)", e.Name, e.ID, e.Mode)
	}
	next := fmt.Sprintf("detach it first (bpftool net show dev %s; ip link show %s) or use "+
		"another interface", e.Interface, e.Interface)
	if e.ID != 0 && e.Name == "" { // without the right to read the name
		return fmt.Sprintf("bpf: %s already has an XDP program (id %d, %s), and without CAP_SYS_ADMIN "+
			"xwarp cannot see whose. xwarpd's: use --transport=daemon. libxdp's dispatcher "+
			"(xdp-loader status %s): xwarp joins it only as root with CAP_SYS_ADMIN. Another one: %s",
			e.Interface, e.ID, e.Mode, e.Interface, next)
	}
	if e.Name == programName {
		return fmt.Sprintf("bpf: another xwarp process uses %s (%s): stop it, or run xwarpd and use "+
			"--transport=daemon in both", e.Interface, who)
	}
	return fmt.Sprintf("bpf: %s already has %s of another owner: %s", e.Interface, who, next)
}

// Is makes errors.Is(err, EBUSY) true.
func (e *ForeignProgramError) Is(target error) bool { return target == unix.EBUSY }

// rightsHint names the capabilities for loading and attaching. CAP_PERFMON is needed for packet pointers with a
// variable offset (headers of variable length) and for the difference of two pointers (the length of the first buffer).
const rightsHint = "needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root or grant all three " +
	"(setcap, AmbientCapabilities=)"

// hint adds to an error what the user can do.
func hint(err error, next string) error {
	return fmt.Errorf("%w: %s", err, next)
}

// loadHint adds to an error of Load what the user can do. release is the release of the kernel.
func loadHint(err error, release string) error {
	var refused *ebpf.VerifierError
	switch {
	case errors.As(err, &refused) && !NewEnough(release):
		return hint(err, fmt.Sprintf("the verifier of Linux %s rejects the program: "+
			"install Linux %s or newer, or use transport = \"kernel\"", release, Oldest))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return hint(err, rightsHint)
	case errors.Is(err, unix.ENOMEM):
		return hint(err, "not enough memory for the maps: make them smaller or raise the "+
			"cgroup's memory limit")
	case errors.Is(err, unix.EINVAL), errors.Is(err, ebpf.ErrNotSupported):
		return hint(err, "multi-buffer XDP programs need Linux 5.18 or newer")
	}
	return err
}

// singleBuffer is approximately the largest MTU at which a driver with one XDP buffer per frame supports native mode:
// the size of a page less headroom, tailroom and headers.
const singleBuffer = 3500

// attachHint adds to an error of attaching what the user can do. mtu is the MTU of the interface.
func attachHint(err error, mtu int) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return hint(err, rightsHint)
	case errors.Is(err, unix.ENODEV):
		return hint(err, "no such interface in this network namespace")
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return hint(err,
			"another XDP program is attached, or is being attached: see bpftool net show")
	case errors.Is(err, unix.EOPNOTSUPP) && mtu > singleBuffer:
		return hint(err, fmt.Sprintf("the driver has no native XDP, or none at MTU %d: vmxnet3 "+
			"and others support it up to about %d; "+
			"lower the MTU or allow generic mode", mtu, singleBuffer))
	case errors.Is(err, unix.EOPNOTSUPP):
		return hint(err, "the driver has no native XDP: allow generic mode")
	case errors.Is(err, unix.ERANGE):
		return hint(err, fmt.Sprintf("the MTU of %d is too large for the driver's XDP buffers: "+
			"lower it (on veth: lower the peer's)", mtu))
	case errors.Is(err, unix.ENOSPC):
		return hint(err, "not enough queues: a veth needs as many receive queues as its peer has "+
			"transmit queues; on a NIC, use fewer channels (ethtool -L)")
	case errors.Is(err, unix.EINVAL):
		return hint(err, fmt.Sprintf("the driver refuses XDP with its current settings (MTU %d, "+
			"LRO, rings, channels): see the kernel log", mtu))
	case errors.Is(err, unix.ENOMEM):
		return hint(err, "no memory for the driver's XDP queues")
	}
	return err
}
