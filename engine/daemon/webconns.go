package daemon

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/host/holder"
)

// connLimiter is the listener of the HTTP server. A new connection never waits. If its owner has webClientsOfOne
// connections, it replaces one of them. If there are webClients in all, it replaces one of the owner with the most. An
// idle connection is closed first, then one without a request, then one with a request. Among equals, the one that has
// been in its state longest is closed.
type connLimiter struct {
	net.Listener
	ownerOf func(net.Conn) any // its results are comparable

	mu    sync.Mutex
	conns map[net.Conn]*limitedConn
}

// limitedConn is a connection of a connLimiter.
type limitedConn struct {
	net.Conn
	owner any
	state http.ConnState
	since time.Time // of the state
}

// webOwner returns the owner of a connection: a user on a Unix socket and on a loopback address, otherwise an IPv4
// address or an IPv6 /64. Loopback connections whose user is unknown have one owner.
func (d *Daemon) webOwner(c net.Conn) any {
	if u, ok := c.(*net.UnixConn); ok {
		cred, err := credentials(u)
		if err != nil {
			return nil
		}
		return d.uidOwners.ownerOf(cred.Uid)
	}
	remote, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	addr := budget.Bare(remote.Addr())
	if !addr.IsLoopback() {
		return budget.PeerOf(addr)
	}
	local, _ := netip.ParseAddrPort(c.LocalAddr().String())
	uid, err := holder.UserOf(remote, local) // the client's socket
	if err != nil {
		return "loopback"
	}
	return d.uidOwners.ownerOf(uid)
}

// Accept implements net.Listener. It closes a new connection whose descriptor is one of those kept for the operator,
// and waits for the next one.
func (v *connLimiter) Accept() (net.Conn, error) {
	for {
		c, err := v.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if budget.IsKept(c, budget.KeptForOperator) {
			c.Close()
			continue
		}
		v.add(c)
		return c, nil
	}
}

// add adds a connection, and at a limit closes another one for it.
func (v *connLimiter) add(c net.Conn) {
	owner := v.ownerOf(c)
	v.mu.Lock()
	defer v.mu.Unlock()
	counts := map[any]int{}
	most := owner
	for _, o := range v.conns {
		counts[o.owner]++
		if counts[o.owner] > counts[most] {
			most = o.owner
		}
	}
	switch {
	case counts[owner] >= webClientsOfOne:
		v.evict(owner)
	case len(v.conns) >= webClients:
		v.evict(most)
	}
	v.conns[c] = &limitedConn{Conn: c, owner: owner, state: http.StateNew, since: time.Now()}
}

// evict closes the least active connection of an owner. It must be called with mu held.
func (v *connLimiter) evict(owner any) {
	var list []*limitedConn
	for _, c := range v.conns {
		if c.owner == owner {
			list = append(list, c)
		}
	}
	order := []http.ConnState{http.StateIdle, http.StateNew, http.StateActive}
	least := slices.MinFunc(list, func(a, b *limitedConn) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.state), slices.Index(order, b.state)),
			a.since.Compare(b.since))
	})
	delete(v.conns, least.Conn)
	go least.Close() // can block: closes descriptors that were sent but not received
}

// onState is http.Server.ConnState. It keeps the latest state of each connection, and forgets those that are closed.
func (v *connLimiter) onState(c net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := v.conns[c]
	switch {
	case o == nil: // evict has closed it
	case state == http.StateClosed:
		delete(v.conns, c)
	case state != o.state:
		o.state, o.since = state, time.Now()
	}
}
