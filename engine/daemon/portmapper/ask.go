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

// Map returns the address at which the listener of remote accepts a connection from local, by the peer's port mapper.
// Without a mapping there, and without an answer in time, it returns remote, as the kernel's RDMA_CM does. dial returns
// a UDP socket that is connected to the peer's port mapper.
func (m *Mapper) Map(ctx context.Context, local, remote netip.AddrPort,
	dial func(local, remote netip.AddrPort) (net.Conn, error)) netip.AddrPort {
	peer := budget.Bare(remote.Addr())
	if m.isSilent(peer, time.Now()) {
		m.count(&m.counts.Unasked)
		return remote
	}
	c, err := dial(netip.AddrPortFrom(local.Addr(), 0), netip.AddrPortFrom(remote.Addr(), Port))
	if err != nil {
		return remote // TCP says why
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
	c.Write(a.Append(nil)) // without it the peer repeats its answer
	return netip.AddrPortFrom(remote.Addr(), a.Accepting.Port())
}

// ask repeats a request until it is answered, as waits says.
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
		for {
			if a, err = answerOf(c, q); err == nil {
				return a, nil
			}
			if errors.Is(err, ErrMessage) {
				continue
			}
			break
		}
		if errors.Is(err, unix.ECONNREFUSED) || ctx.Err() != nil {
			return a, err // the peer's kernel says that nobody is there
		}
	}
	return a, err
}

// answerOf reads a datagram that answers q; any other is an ErrMessage.
func answerOf(c net.Conn, q *Message) (a Message, err error) {
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
		return a, ErrMessage // a port mapper changes the port alone
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
		m.silent = map[netip.Addr]time.Time{} // each costs one wait more
	}
	m.silent[peer] = now.Add(silence)
}
