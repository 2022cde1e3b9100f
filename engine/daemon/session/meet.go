package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"xwarp/engine/daemon/device"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// RendezvousService connects the queue pairs of a daemon that got their peer by ibv_modify_qp. All sessions share it.
type RendezvousService struct {
	numbers rendezvous.Numbers
	table   *rendezvous.Table
	allows  func(peer netip.Addr) error
	port    uint16 // port to listen on: rendezvous.Port, or 0 for any free one

	mu    sync.Mutex // not held during calls of the device
	ports map[rendezvousAddr]*rendezvousPort
}

// rendezvousAddr identifies a rendezvousPort. It has the device too, because two devices may have the same address.
type rendezvousAddr struct {
	dev *device.Device
	at  netip.Addr
}

// rendezvousPort is a listener for the rendezvous. It is open while queue pairs use its address, and while there are
// sessions whose program has queried it, see queryGIDs.
type rendezvousPort struct {
	mu       sync.Mutex     // held while opening or closing the listener
	listener verbs.Listener // nil if not open
	users    int
}

// NewRendezvousService returns a RendezvousService without connections. allows returns an error unless the
// configuration allows a peer. A private daemon listens on any free port, so its queue pairs can connect to each other
// only.
func NewRendezvousService(allows func(peer netip.Addr) error, private bool) *RendezvousService {
	m := &RendezvousService{table: rendezvous.NewTable(),
		ports: map[rendezvousAddr]*rendezvousPort{}, allows: allows, port: rendezvous.Port}
	if private {
		m.port = 0
	}
	return m
}

// portAt returns the port to connect to for a rendezvous with address at: that of this daemon's listener if it has one
// there, otherwise the one on which other daemons listen.
func (m *RendezvousService) portAt(dev *device.Device, at netip.Addr) uint16 {
	m.mu.Lock()
	p := m.ports[rendezvousAddr{dev, at}]
	m.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.listener != nil {
			return p.listener.Addr().Port()
		}
	}
	return rendezvous.Port
}

// portOf returns the rendezvousPort of an address, which stays in the map until its device is lost.
func (m *RendezvousService) portOf(key rendezvousAddr) *rendezvousPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.ports[key]
	if p == nil {
		p = &rendezvousPort{}
		m.ports[key] = p
	}
	return p
}

// open listens on an address of dev. Several callers share one listener, which is closed when each of them has called
// close.
func (m *RendezvousService) open(dev *device.Device, at netip.Addr) (close func(), err error) {
	key := rendezvousAddr{dev, at}
	p := m.portOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		l, err := dev.Core.Listen(netip.AddrPortFrom(at, m.port),
			verbs.ListenConfig{Backlog: rendezvous.Backlog})
		if err != nil {
			return nil, err
		}
		p.listener = l
		go m.accept(key, p, l)
	}
	p.users++
	return p.endUse, nil
}

// endUse ends the use of p that open began.
func (p *rendezvousPort) endUse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.listener.Close()
		p.listener = nil
	}
}

// accept accepts requests on p until its listener l or its device is closed. If it is the device, accept removes p from
// the map.
func (m *RendezvousService) accept(key rendezvousAddr, p *rendezvousPort, l verbs.Listener) {
	for {
		r, err := l.Accept(context.Background())
		if err != nil {
			break
		}
		m.table.Arrive(r)
	}
	p.mu.Lock()
	lost := p.listener == l
	p.mu.Unlock()
	if !lost {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports[key] == p {
		delete(m.ports, key)
	}
}

// meet connects the queue pair of d to its peer, however long that takes: the peer may reach RTR much later. It gives
// up if ctx is done, or if the queue pair can no longer be connected.
func (d *roceConn) meet(ctx context.Context, closePort func()) {
	q, s := d.q, d.q.s
	defer close(d.met)
	defer guard.Recover(s.onDefect("connecting a queue pair"))
	try := func(ctx context.Context) error { return d.accept(ctx, q.eng) }
	switch {
	case d.pair.IsSelf():
		try = d.dialSelf
	case d.pair.Dials():
		try = d.dial
	}
	context.AfterFunc(q.ended, closePort)
	for pause := rendezvous.FirstPause; ; pause = min(2*pause, rendezvous.LongestPause) {
		err := try(ctx)
		switch {
		case err == nil:
			d.setConnected()
			q.connected.Store(true)
			s.drain(q)
			s.activateLater(q)
			return
		case ctx.Err() != nil, errors.Is(err, verbs.ErrHasConn), errors.Is(err, verbs.ErrClosed):
			return
		}
		d.mu.Lock()
		d.lastErr = err
		d.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// dial makes one attempt to connect to the peer's daemon.
func (d *roceConn) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rendezvous.AttemptTime, errNoAnswer)
	defer cancel()
	q, s := d.q, d.q.s
	gid := d.pair.Remote.GID
	remote := netip.AddrPortFrom(gid, s.rendezvous.portAt(s.dev, gid))
	if err := s.checkLocal(remote); err != nil {
		return err
	}
	s.drain(q) // the receives, because the peer may send at once
	eng := q.eng
	err := s.throttle(ctx, func() error {
		return s.dev.Core.Attempt(ctx, remote, eng, &verbs.DialConfig{
			Local:       netip.AddrPortFrom(d.pair.Local.GID, 0),
			PrivateData: rendezvous.LocalFrame(d.pair).Append(nil),
		})
	})
	if r, ok := errors.AsType[*verbs.Rejection](err); ok {
		if rendezvous.IsRefusal(r.PrivateData) {
			return errors.New("the peer's xwarpd has no queue pair in RTR for this one")
		}
		return fmt.Errorf("the peer at port %d does not speak this protocol: is it an xwarpd of the "+
			"same version? %w", rendezvous.Port, err)
	}
	if err != nil {
		return err
	}
	f, err := rendezvous.ParseFrame(eng.Params().PrivateData)
	if err == nil && f.Pair() != d.pair {
		err = errors.New("the peer's xwarpd answered for another queue pair")
	}
	if err != nil {
		eng.Abort()
		return fmt.Errorf("%w: %w", verbs.ErrClosed, err)
	}
	return nil
}

// accept waits for the peer's daemon to dial, and connects eng.
func (d *roceConn) accept(ctx context.Context, eng *core.QP) error {
	q, s := d.q, d.q.s
	arrived := make(chan *verbs.ConnRequest, 1)
	s.rendezvous.table.Expect(d.pair, func(r *verbs.ConnRequest) { arrived <- r })
	select {
	case r := <-arrived:
		s.drain(q) // the receives, because the peer may send at once
		err := s.throttle(ctx, func() error {
			return r.Accept(ctx, eng, rendezvous.LocalFrame(d.pair).Append(nil))
		})
		if err != nil {
			r.Reject(rendezvous.Refusal) // if it was not answered
		}
		if isDone(eng.Done()) {
			return verbs.ErrClosed
		}
		return err
	case <-ctx.Done():
		s.rendezvous.table.Forget(d.pair)
		select {
		case r := <-arrived:
			r.Reject(rendezvous.Refusal)
		default:
		}
		return context.Cause(ctx)
	}
}
