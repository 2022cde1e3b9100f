package xdp

import (
	"net/netip"

	"xwarp/engine/internal/core"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/seq"
)

// conn is a connection on the engine's own TCP.
type conn struct {
	overtcp.Conn
	w *worker
}

// ownTCP implements core.TCP with a stack.
type ownTCP struct{ *stack.Stack }

func (t ownTCP) Connections() (all []core.TCPConn) {
	t.Endpoints(func(e *stack.Endpoint) { all = append(all, e) })
	return all
}

// newUpper creates the upper layer of c on worker w, and binds c to it.
func (x *driver) newUpper(w *worker, c *core.Conn) (*overtcp.Conn, error) {
	xc := &conn{w: w}
	if err := c.Bind(w.Shard, &xc.Conn.Conn, xc); err != nil {
		return nil, err
	}
	err := xc.Init(x.base.IWARPConfig(c, w.Shard, false))
	if err == nil {
		w.Sums.AddConn(c)
	}
	return &xc.Conn, err
}

// EndAfterPanic implements core's panicTarget.
func (c *conn) EndAfterPanic(why error) {
	if c.Endpoint != nil {
		c.w.stk.Abandon(c.Endpoint, why, core.Now())
	} else {
		c.Abandon(why)
	}
}

// Transport implements core.Carrier.
func (c *conn) Transport() string { return "xdp" }

// TCPInfo implements core.Carrier. It returns nil before there is a TCP connection.
func (c *conn) TCPInfo() *verbs.TCPInfo {
	if c.Endpoint == nil {
		return nil
	}
	t := c.Endpoint.Conn()
	return &verbs.TCPInfo{Info: t.Info(core.Now()), Counters: t.Counters()}
}

// Obstacle implements core.Carrier. It returns nil before there is a TCP connection.
func (c *conn) Obstacle() error {
	if c.Endpoint == nil {
		return nil
	}
	return c.Endpoint.Obstacle()
}

// OnEstablished implements core.Carrier.
func (c *conn) OnEstablished(s *core.Share) {
	c.Endpoint.Confirm()
	c.Endpoint.SetClass(core.ConnClass[*stack.Endpoint](s))
}

// SetTOS implements core.Carrier. It does nothing before there is a TCP connection.
func (c *conn) SetTOS(tos uint8) {
	if c.Endpoint != nil {
		c.Endpoint.SetTOS(tos)
	}
}

// Reclaim implements core.Carrier. It does nothing, because frames are copies and no memory is lent to the kernel.
func (c *conn) Reclaim() {}

func copyMode(i ring.Info) string {
	if i.ZeroCopy {
		return "zero-copy"
	}
	return "copy"
}

func tupleOf(local, remote netip.AddrPort) tcp.Tuple {
	return tcp.Tuple{
		Local: core.FromNetip(local.Addr()), LocalPort: local.Port(),
		Remote: core.FromNetip(remote.Addr()), RemotePort: remote.Port(),
	}
}

// resumeConn continues on w a connection in SYN-SENT that another worker started with the initial sequence number iss
// and the path MTU mtu. s is the peer's answer to the SYN.
func (x *driver) resumeConn(w *worker, c *core.Conn, iss seq.Num, mtu int, s *stack.Stray) {
	o, err := x.newUpper(w, c)
	if err == nil {
		cfg := x.rdmaConfig()
		cfg.PathMTU = mtu
		_, err = w.stk.Resume(tupleOf(c.Local, c.Remote), &cfg, o, iss, core.Now())
	}
	if err == nil {
		o.Endpoint.SetTOS(c.TOS())
	}
	if err != nil {
		c.Release()
		c.Report(err)
		return
	}
	w.stk.Inject(s, core.Now())
}
