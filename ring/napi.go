package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NAPI holds the settings of a NAPI instance, which polls one or more queues of a device.
type NAPI struct {
	ID            uint32
	DeferHardIRQs uint32 // empty polls in a row before the driver enables the interrupt again
	// GROFlushTimeout is the time in nanoseconds after which the kernel polls by a timer while the interrupt is
	// deferred.
	GROFlushTimeout uint64
	// IRQSuspendTimeout is the time in nanoseconds for which epoll may suspend the interrupt. Only programs that busy
	// poll through epoll use it.
	IRQSuspendTimeout uint64
}

// The part of linux/netdev.h about NAPI: the commands napi-get and napi-set, and their attributes.
const (
	netdevNAPIGet = 11
	netdevNAPISet = 14

	netdevNAPIID         = 2
	netdevNAPIDefer      = 5
	netdevNAPIGROFlush   = 6
	netdevNAPIIRQSuspend = 7

	netdevQueueNAPI = 4 // of queue-get
)

// QueueNAPI returns the ID of the NAPI instance that polls a receive queue of a device in the calling thread's network
// namespace. It is 0 if the driver does not report one. With kernels before 6.8 the error wraps ErrNotReported.
func QueueNAPI(ifindex int, queue uint32) (uint32, error) {
	attrs, err := queryQueue(ifindex, queue)
	if err != nil {
		return 0, fmt.Errorf("ring: NAPI of queue %d of device %d: %w", queue, ifindex, err)
	}
	return uint32(findNumber(attrs, netdevQueueNAPI)), nil
}

// QueryNAPI returns the settings of a NAPI instance in the calling thread's network namespace (Linux 6.13; the settings
// of older kernels belong to the device and are reported as 0).
func QueryNAPI(id uint32) (NAPI, error) {
	attrs, err := queryNetdev(netdevNAPIGet, attr{netdevNAPIID, uint32(id)})
	if err != nil {
		return NAPI{}, fmt.Errorf("ring: settings of NAPI %d: %w", id, err)
	}
	return NAPI{
		ID:                id,
		DeferHardIRQs:     uint32(findNumber(attrs, netdevNAPIDefer)),
		GROFlushTimeout:   findNumber(attrs, netdevNAPIGROFlush),
		IRQSuspendTimeout: findNumber(attrs, netdevNAPIIRQSuspend),
	}, nil
}

// SetNAPI changes the settings of a NAPI instance in the calling thread's network namespace. It needs CAP_NET_ADMIN and
// Linux 6.13: the error of an older kernel wraps EOPNOTSUPP.
func SetNAPI(n NAPI) error {
	family, err := netdevFamily()
	if err == nil {
		req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
		req.AddData(genlHeader{netdevNAPISet, 1})
		req.AddData(nl.NewRtAttr(netdevNAPIID, nl.Uint32Attr(n.ID)))
		req.AddData(nl.NewRtAttr(netdevNAPIDefer, nl.Uint32Attr(n.DeferHardIRQs)))
		req.AddData(nl.NewRtAttr(netdevNAPIGROFlush, nl.Uint64Attr(n.GROFlushTimeout)))
		req.AddData(nl.NewRtAttr(netdevNAPIIRQSuspend, nl.Uint64Attr(n.IRQSuspendTimeout)))
		_, err = req.Execute(unix.NETLINK_GENERIC, 0)
	}
	if err != nil {
		return fmt.Errorf("ring: setting NAPI %d: %w", n.ID, err)
	}
	return nil
}

// findNumber returns the number in the attribute kind, which has 32 or 64 bits, or 0 if there is no such attribute.
func findNumber(attrs []syscall.NetlinkRouteAttr, kind uint16) uint64 {
	for _, a := range attrs {
		switch {
		case a.Attr.Type != kind:
		case len(a.Value) == 4:
			return uint64(binary.NativeEndian.Uint32(a.Value))
		case len(a.Value) == 8:
			return binary.NativeEndian.Uint64(a.Value)
		}
	}
	return 0
}

// pollBudget is the maximum number of frames that one poll receives. It is the kernel's limit for a poll after an
// interrupt.
const pollBudget = 64

// NAPI returns the ID of the NAPI instance of the socket's queue. It is 0 if the driver does not report the instance,
// or if the kernel is older than 6.14.
func (s *Socket) NAPI() uint32 {
	id, err := unix.GetsockoptInt(s.Fd(), unix.SOL_SOCKET, unix.SO_INCOMING_NAPI_ID)
	if err != nil {
		return 0
	}
	return uint32(id)
}

// BusyPoll makes Recv poll the NAPI instance of the queue whenever the receive ring is empty, instead of waiting for
// interrupts. Wait enables the interrupt again before it sleeps. deferrals is the DeferHardIRQs of the NAPI instance.
// BusyPoll needs CAP_NET_ADMIN.
func (s *Socket) BusyPoll(deferrals uint32) error {
	k, ok := s.k.(*linux)
	if !ok {
		return fmt.Errorf("ring: busy polling: %w", unix.EOPNOTSUPP)
	}
	if err := errors.Join(k.setSocket(unix.SO_PREFER_BUSY_POLL, 1),
		k.setSocket(unix.SO_BUSY_POLL_BUDGET, pollBudget)); err != nil {
		return fmt.Errorf("ring: busy polling: %w", err)
	}
	k.polls, k.deferrals, k.zeroCopy = true, deferrals, s.info.ZeroCopy
	if !k.zeroCopy {
		_ = k.setSocket(unix.SO_BUSY_POLL, 1)
	}
	return nil
}

func (k *linux) setSocket(option, value int) error {
	return unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, option, value)
}

// poll receives the frames that wait in the queue, if BusyPoll was called; otherwise it returns false. In zero-copy
// mode SO_BUSY_POLL is on for this call only. While it is on, the transmit calls of a socket that prefers busy polling
// poll the NAPI instance of the receive queue and do not wake the driver. But virtio_net transmits by another NAPI
// instance. In copy mode SO_BUSY_POLL stays on, and each transmit call polls too.
func (k *linux) poll() bool {
	if !k.polls {
		return false
	}
	if k.zeroCopy {
		_ = k.setSocket(unix.SO_BUSY_POLL, 1)
		defer k.setSocket(unix.SO_BUSY_POLL, 0)
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return true
}

// enableInterrupt makes the driver enable the interrupt, if BusyPoll was called. The driver does so after k.deferrals
// empty polls in a row without preference for busy polling. If a frame arrives meanwhile, the interrupt stays deferred,
// and the caller finds the frame.
func (k *linux) enableInterrupt() {
	if !k.polls {
		return
	}
	_ = k.setSocket(unix.SO_PREFER_BUSY_POLL, 0)
	for range k.deferrals + 1 {
		k.poll()
	}
	_ = k.setSocket(unix.SO_PREFER_BUSY_POLL, 1)
}
