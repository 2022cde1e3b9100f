package portmapper

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
)

// Query asks the peer's port mapper for the address at which the listener of remote accepts a connection from local. If
// the peer has no mapping or does not answer in time, Query returns remote, like the kernel's RDMA_CM. dial returns a
// UDP socket that is connected to the peer's port mapper.
func (m *Mapper) Query(ctx context.Context, local, remote netip.AddrPort,
	dial func(local, remote netip.AddrPort) (net.Conn, error)) netip.AddrPort {
	peer := budget.Bare(remote.Addr())
	if m.isSilent(peer, time.Now()) {
		m.count(&m.counts.Unasked)
		return remote
	}
	c, err := dial(netip.AddrPortFrom(local.Addr(), 0), netip.AddrPortFrom(remote.Addr(), Port))
	if err != nil {
		return remote // TCP reports the error
	}
	defer c.Close()
	q := Message{Handle: rand.Uint64(), Accepting: netip.AddrPortFrom(peer, remote.Port()),
		Connecting: netip.AddrPortFrom(budget.Bare(local.Addr()), local.Port())}
	q.Mapped = q.Connecting
	a, err := m.ask(ctx, c, &q)
	switch {
	case ctx.Err() != nil:
		return remote
	case err != nil:
		m.count(&m.counts.Unanswered)
		m.remember(peer, time.Now())
		return remote
	case a.Type == Reject:
		m.count(&m.counts.RejectsIn)
		return remote
	}
	m.count(&m.counts.AcceptsIn)
	a.Type = Ack
	c.Write(a.Append(nil)) // otherwise the peer repeats its answer
	return netip.AddrPortFrom(remote.Addr(), a.Accepting.Port())
}

// ask sends a request, and repeats it at the intervals of waits until it is answered or refused. It fails after the
// last of them.
func (m *Mapper) ask(ctx context.Context, c net.Conn, q *Message) (a Message, err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	b := q.Append(nil)
	for _, wait := range waits {
		m.count(&m.counts.RequestsOut)
		if _, err = c.Write(b); err != nil {
			return a, err
		}
		c.SetReadDeadline(time.Now().Add(wait))
		for err = ErrMessage; errors.Is(err, ErrMessage); {
			a, err = readAnswer(c, q)
		}
		if err == nil || errors.Is(err, unix.ECONNREFUSED) || ctx.Err() != nil {
			return a, err // refused: the peer's kernel reports that no port mapper runs
		}
	}
	return a, err
}

// readAnswer reads the answer to q. For any other datagram it fails with ErrMessage.
func readAnswer(c net.Conn, q *Message) (a Message, err error) {
	var b [RequestLen + 1]byte
	n, err := c.Read(b[:])
	if err != nil {
		return a, err
	}
	a, err = Parse(b[:n])
	switch {
	case err != nil:
		return a, err
	case a.Type != Accept && a.Type != Reject || a.Handle != q.Handle ||
		a.Connecting != q.Connecting || a.Accepting.Port() == 0:
		return a, ErrMessage
	case a.Accepting.Addr() != q.Accepting.Addr():
		return a, ErrMessage // a port mapper changes only the port
	}
	return a, nil
}

func (m *Mapper) isSilent(peer netip.Addr, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.silent[peer])
}

// remember notes that a peer did not answer.
func (m *Mapper) remember(peer netip.Addr, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.silent) >= maxSilent || m.silent == nil {
		m.silent = map[netip.Addr]time.Time{} // the forgotten peers then cost one more wait each
	}
	m.silent[peer] = now.Add(silence)
}
