package engine

import (
	"net/netip"

	"xwarp/engine/iwarp"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/seq"
)

// xdpConn is a connection on the engine's own TCP.
type xdpConn struct {
	iwarp.OverTCP
	w *worker
}

// carry makes the iwarp.Conn of c on worker w.
func (x *xdpDriver) carry(w *worker, c *conn) (*iwarp.OverTCP, error) {
	xc := &xdpConn{w: w}
	if err := c.begin(w.loop, &xc.Conn, xc); err != nil {
		return nil, err
	}
	err := xc.Init(x.base.IWARPConfig(c, w.loop, false))
	if err == nil {
		w.sums.enterConn(c)
	}
	return &xc.OverTCP, err
}

// abandon implements abandoner.
func (c *xdpConn) abandon(why error) {
	if c.Endpoint != nil {
		c.w.stk.Abandon(c.Endpoint, why, clock())
	} else {
		c.Abandon(why)
	}
}

// transport implements carrier.
func (c *xdpConn) transport() string { return "xdp" }

// tcpInfo implements carrier.
func (c *xdpConn) tcpInfo() *verbs.TCPInfo {
	if c.Endpoint == nil {
		return nil
	}
	t := c.Endpoint.Conn()
	return &verbs.TCPInfo{Info: t.Info(clock()), Counters: t.Counters()}
}

// established implements carrier.
func (c *xdpConn) established(s *share) {
	c.Endpoint.Confirm()
	c.Endpoint.SetClass(&s.conns)
}

// reclaim implements carrier: nothing is lent, each frame is a copy.
func (c *xdpConn) reclaim() {}

func copyMode(i ring.Info) string {
	if i.ZeroCopy {
		return "zero-copy"
	}
	return "copy"
}

func tupleOf(local, remote netip.AddrPort) tcp.Tuple {
	return tcp.Tuple{
		Local: fromNetip(local.Addr()), LocalPort: local.Port(),
		Remote: fromNetip(remote.Addr()), RemotePort: remote.Port(),
	}
}

// resume goes on with a connection that another worker began; s is the answer to its SYN.
func (x *xdpDriver) resume(w *worker, c *conn, iss seq.Num, s *stack.Stray) {
	o, err := x.carry(w, c)
	if err == nil {
		cfg := x.rdmaConfig()
		_, err = w.stk.Resume(tupleOf(c.local, c.remote), &cfg, o, iss, clock())
	}
	if err != nil {
		c.release()
		c.report(err)
		return
	}
	w.stk.Inject(s, clock())
}
