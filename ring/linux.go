package ring

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kickTx makes the kernel process the transmit ring. The raw system call keeps the P. In an ordinary one of more than
// 20 us the scheduler hands the P to another thread, which was measured to cost 18 to 31 % of the frames.
func (k *linux) kickTx() unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// kickRx makes a zero-copy driver process the fill ring. It ignores errors, because kickTx returns them too. While
// SO_BUSY_POLL is on (which needs CAP_NET_ADMIN), recvfrom polls the receive queue itself before it makes the driver
// raise an interrupt. igb raises the interrupt of the transmit queue. If the receive queue has another one, it would
// never receive again after its fill ring was once empty. SO_BUSY_POLL is on for this call only: otherwise every kickTx
// would poll too.
func (k *linux) kickRx() {
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, 1)
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, 0)
	if k.polls { // the call above did not wake the driver, and polled nothing if the NAPI instance no longer exists
		_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
}

// wait polls through an ordinary system call, so that the scheduler can use the processor meanwhile.
func (k *linux) wait(timeout time.Duration, extra int) Ready {
	k.fds[0] = unix.PollFd{Fd: int32(k.fd), Events: unix.POLLIN}
	k.fds[1] = unix.PollFd{Fd: int32(extra), Events: unix.POLLIN} // a negative descriptor is ignored
	if n := pollUntil(k.fds[:], timeout); n <= 0 {
		return 0
	}
	var r Ready
	if k.fds[0].Revents&unix.POLLIN != 0 {
		r |= ReadyRx
	}
	if k.fds[1].Revents&unix.POLLIN != 0 {
		r |= ReadyExtra
	}
	if (k.fds[0].Revents|k.fds[1].Revents)&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
		r |= ReadyError
	}
	return r
}

// pollUntil is ppoll(2) with a timeout; a negative one means forever. It returns -1 if a signal interrupts the call,
// which callers treat as a timeout.
func pollUntil(fds []unix.PollFd, timeout time.Duration) int {
	if timeout < 0 {
		n, _ := unix.Ppoll(fds, nil, nil)
		return n
	}
	ts := unix.NsecToTimespec(int64(timeout))
	n, _ := unix.Ppoll(fds, &ts, nil)
	return n
}

func (k *linux) statistics() (st unix.XDPStatistics, err error) {
	err = k.getsockopt(unix.XDP_STATISTICS, unsafe.Pointer(&st), unsafe.Sizeof(st))
	return st, err
}

func (k *linux) descriptor() int { return k.fd }

// close closes the socket and unmaps the UMEM and the rings: while a ring is mapped, the kernel keeps the socket bound
// to its queue.
func (k *linux) close() error {
	var errs []error
	for _, m := range k.maps {
		errs = append(errs, unix.Munmap(m))
	}
	k.maps = nil
	return errors.Join(append(errs, unix.Close(k.fd))...)
}
