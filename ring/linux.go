package ring

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kickTx makes the kernel process the transmit ring. The raw system call keeps the P: measured, the scheduler's
// hand-over for a call of more than 20 us costs 18 to 31 % of the frames.
func (k *linux) kickTx() unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// kickRx has a zero-copy driver look at the fill ring. Errors show in kickTx. While SO_BUSY_POLL is on (it takes
// CAP_NET_ADMIN), the call polls the receive side of the queue itself before it asks the driver for an interrupt. igb
// raises the transmit queue's then, and where that is another one, a queue whose fill ring was empty once would never
// receive again. Left on, every kickTx would poll too.
func (k *linux) kickRx() {
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, 1)
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(k.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, 0)
	if k.polls { // the call above did not ask the driver, and has polled nothing if the NAPI instance is gone
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

// pollUntil is ppoll(2). An interrupted call counts as timed out: callers loop anyway.
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

// close unmaps the rings too: as long as one is mapped, the kernel keeps the socket and its queue.
func (k *linux) close() error {
	var errs []error
	for _, m := range k.maps {
		errs = append(errs, unix.Munmap(m))
	}
	k.maps = nil
	return errors.Join(append(errs, unix.Close(k.fd))...)
}
