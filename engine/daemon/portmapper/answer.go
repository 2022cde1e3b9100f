package portmapper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
)

// answer returns the reply to a datagram of a peer, or nil. to is the local destination address of the datagram; it is
// invalid for broadcast and multicast.
func (m *Mapper) answer(r *Rules, b []byte, from, to netip.Addr, now time.Time) []byte {
	q, err := Parse(b)
	switch {
	case !to.IsValid():
		m.count(&m.counts.Misaddressed)
		return nil
	case err == nil && q.Type == Ack:
		m.count(&m.counts.AcksIn)
		return nil
	case err != nil || q.Type != Request:
		m.count(&m.counts.Malformed)
		return nil
	}
	m.count(&m.counts.RequestsIn)
	switch {
	case !r.Admits(from):
		m.count(&m.counts.Denied)
		return nil
	case !m.mayAnswer(from, now):
		m.count(&m.counts.Limited)
		return nil
	case q.Accepting.Addr() == to && r.Listens(q.Accepting):
		m.count(&m.counts.AcceptsOut)
		q.Type = Accept
	default:
		m.count(&m.counts.RejectsOut)
		q.Type = Reject
	}
	return q.Append(nil)
}

// mayAnswer counts an answer to a source, and reports whether the rate limits allow it.
func (m *Mapper) mayAnswer(from netip.Addr, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.second) >= time.Second || m.of == nil {
		m.second, m.total = now, 0
		m.of = map[netip.Prefix]int{}
	}
	key := budget.PeerOf(from)
	if m.total >= maxAnswers || m.of[key] >= maxPerSource {
		return false
	}
	m.total++
	m.of[key]++
	return true
}

// quietTime returns for how long no request is answered because the total rate limit is reached, or 0 if it is not.
func (m *Mapper) quietTime(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total < maxAnswers {
		return 0
	}
	return time.Second - now.Sub(m.second)
}

// Listen opens the IPv4 and IPv6 sockets of a port mapper in the calling thread's network namespace. They receive from
// one interface; an empty name means all. It fails with EADDRINUSE if another port mapper runs, such as iwpmd.
func Listen(ifname string) (list []*net.UDPConn, err error) {
	for _, network := range []string{"udp4", "udp6"} {
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return prepare(raw, network == "udp6", ifname)
		}}
		c, err := lc.ListenPacket(context.Background(), network, fmt.Sprintf(":%d", Port))
		if network == "udp6" && errors.Is(err, unix.EAFNOSUPPORT) {
			break
		}
		if err != nil {
			for _, c := range list {
				c.Close()
			}
			return nil, err
		}
		list = append(list, c.(*net.UDPConn))
	}
	return list, nil
}

// prepare binds a socket to an interface and enables control messages with the destination address.
func prepare(raw syscall.RawConn, six bool, ifname string) (err error) {
	e := raw.Control(func(fd uintptr) {
		if six {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		if err == nil && ifname != "" {
			err = unix.BindToDevice(int(fd), ifname)
		}
	})
	return errors.Join(e, err)
}

// Serve answers requests on a socket of Listen until the socket is closed.
func (m *Mapper) Serve(c *net.UDPConn, r *Rules) {
	b, oob := make([]byte, RequestLen+1), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		n, on, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(errorPause)
			continue
		}
		now := time.Now()
		a := m.answer(r, b[:n], budget.Bare(from.Addr()), destination(oob[:on]), now)
		if a != nil {
			// The control message makes the answer leave from the address that the request was sent to. If sending
			// fails, the peer repeats its request.
			c.WriteMsgUDPAddrPort(a, oob[:on], from)
		}
		if rest := m.quietTime(now); rest > 0 {
			time.Sleep(rest)
		}
	}
}

// destination returns the local address that a datagram was sent to, from its control messages. It returns no address
// for broadcast and multicast: otherwise a whole network would answer one request with a forged source.
func destination(oob []byte) netip.Addr {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(list) != 1 {
		return netip.Addr{}
	}
	switch h, b := list[0].Header, list[0].Data; {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO &&
		len(b) == unix.SizeofInet4Pktinfo:
		if own := [4]byte(b[4:8]); own == [4]byte(b[8:12]) { // ipi_spec_dst and ipi_addr
			return netip.AddrFrom4(own)
		}
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO &&
		len(b) == unix.SizeofInet6Pktinfo:
		if own := netip.AddrFrom16([16]byte(b)); !own.IsMulticast() {
			return own
		}
	}
	return netip.Addr{}
}
