package script

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ports"
	"xwarp/tcp/tick"
)

// socket is a kernel socket.
type socket struct{ fd int }

// errnoName names err as errno.h does.
func errnoName(err error) string {
	var e unix.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// make returns a socket bound to the host's address and port.
func (h *linux) make() (int, error) {
	family := unix.AF_INET
	if h.opt.IPv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(h.options(fd),
		unix.Bind(fd, sockaddr(netip.AddrPortFrom(h.e.host, hostPort)))); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (h *linux) options(fd int) error {
	type opt struct{ level, name, v int }
	opts := []opt{{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}, {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}}
	if h.opt.Nagle {
		opts[1].v = 0
	}
	if h.opt.RcvBuf > 0 {
		opts = append(opts, opt{unix.SOL_SOCKET, unix.SO_RCVBUF, h.opt.RcvBuf})
	}
	snd := 512 << 10
	if h.opt.SndBuf > 0 {
		snd = h.opt.SndBuf
	}
	opts = append(opts, opt{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, snd})
	if h.opt.MSS > 0 {
		opts = append(opts, opt{unix.IPPROTO_TCP, unix.TCP_MAXSEG, h.opt.MSS})
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.v); err != nil {
			return err
		}
	}
	cc := "reno"
	if h.opt.Cubic {
		cc = "cubic"
	}
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
}

func (h *linux) listen(backlog int) string {
	fd, err := h.make()
	if err == nil {
		h.listener, err = fd, unix.Listen(fd, backlog)
	}
	return errnoName(err)
}

func (h *linux) accept(flow int, peer netip.AddrPort) string {
	fd, from, err := unix.Accept4(h.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return errnoName(err)
	}
	h.fds[flow] = &socket{fd: fd}
	if port := ports.Of(from); port != peer.Port() {
		return fmt.Sprintf("connection-of-port-%d", port)
	}
	h.delay(fd)
	return ""
}

// delay ends the quick acknowledgements at the start of a connection, if the script requires that.
func (h *linux) delay(fd int) {
	if h.opt.DelayedAcks {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
}

func (h *linux) connect(flow int, peer netip.AddrPort) string {
	fd, err := h.make()
	if err != nil {
		return errnoName(err)
	}
	h.fds[flow] = &socket{fd: fd}
	h.delay(fd)
	if err = unix.Connect(fd, sockaddr(peer)); errors.Is(err, unix.EINPROGRESS) {
		err = nil
	}
	h.collect()
	return errnoName(err)
}

func (h *linux) fd(flow int) int {
	if s := h.fds[flow]; s != nil {
		return s.fd
	}
	return -1
}

func (h *linux) write(flow int, b []byte) (int, string) {
	n, err := unix.SendmsgN(h.fd(flow), b, nil, nil, unix.MSG_NOSIGNAL)
	h.collect()
	return max(n, 0), errnoName(err)
}

func (h *linux) read(flow, most int) ([]byte, string) {
	b := make([]byte, most)
	n, err := unix.Read(h.fd(flow), b)
	h.collect()
	return b[:max(n, 0)], errnoName(err)
}

func (h *linux) shutdown(flow int, rd, wr bool) string {
	how := unix.SHUT_RDWR
	switch {
	case !wr:
		how = unix.SHUT_RD
	case !rd:
		how = unix.SHUT_WR
	}
	err := unix.Shutdown(h.fd(flow), how)
	h.collect()
	return errnoName(err)
}

func (h *linux) closeSocket(flow int, abort bool) string {
	fd := h.fd(flow)
	if abort {
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	err := unix.Close(fd)
	delete(h.fds, flow)
	h.collect()
	return errnoName(err)
}

func (h *linux) set(flow int, name string, v int) error {
	fd := h.fd(flow)
	tcp := func(opt, v int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, opt, v) }
	switch name {
	case "keepalive":
		s := max(1, v/1000)
		return errors.Join(tcp(unix.TCP_KEEPIDLE, s), tcp(unix.TCP_KEEPINTVL, s),
			tcp(unix.TCP_KEEPCNT, 3),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
	case "user-timeout":
		return tcp(unix.TCP_USER_TIMEOUT, v)
	case "quickack":
		return tcp(unix.TCP_QUICKACK, v)
	}
	return fmt.Errorf("%q is not a socket option of the kernel", name)
}

var kernelStates = [...]string{"?", "ESTABLISHED", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1",
	"FIN-WAIT-2", "TIME-WAIT", "CLOSED", "CLOSE-WAIT",
	"LAST-ACK", "LISTEN", "CLOSING"}

func (h *linux) state(flow int) string {
	i, err := unix.GetsockoptTCPInfo(h.fd(flow), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return errnoName(err)
	}
	return kernelStates[min(int(i.State), len(kernelStates)-1)]
}

func (h *linux) lastError(flow int) string {
	n, err := unix.GetsockoptInt(h.fd(flow), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return errnoName(err)
	}
	if n == 0 {
		return ""
	}
	return unix.ErrnoName(unix.Errno(n))
}

// Bits of tcpi_options.
const (
	optTimestamps = 1 << iota
	optSACK
	optWScale
	optECN
)

func (h *linux) info(flow int) (map[string]int, error) {
	i, err := unix.GetsockoptTCPInfo(h.fd(flow), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return nil, err
	}
	bit := func(b uint8) int { return int(i.Options & b / b) }
	us := func(v uint32) int { return ms(tick.Duration(v) * tick.Microsecond) }
	pmtu, _ := unix.GetsockoptInt(h.fd(flow), unix.IPPROTO_IP, unix.IP_MTU)
	if h.opt.IPv6 {
		pmtu, _ = unix.GetsockoptInt(h.fd(flow), unix.IPPROTO_IPV6, unix.IPV6_MTU)
	}
	m := map[string]int{
		"cwnd": int(i.Snd_cwnd), "ssthresh": int(i.Snd_ssthresh), "unacked": int(i.Unacked),
		"sacked": int(i.Sacked), "lost": int(i.Lost),
		"rto": us(i.Rto), "srtt": us(i.Rtt), "rttvar": us(i.Rttvar), "backoff": int(i.Backoff),
		"probes": int(i.Probes), "mss": int(i.Snd_mss),
		"advmss": int(i.Advmss), "pmtu": pmtu, "retrans": int(i.Total_retrans),
		"timestamps": bit(optTimestamps), "sack": bit(optSACK),
		"wscale": bit(optWScale), "ecn": bit(optECN), "ca": int(i.Ca_state),
		"dsacks": int(i.Dsack_dups),
	}
	return m, nil
}
