package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/ranges"
	"xwarp/engine/verbs"
)

// listener is a listener of a session; request is an unanswered connection request.
type listener struct {
	object
	eng verbs.Listener
}

type request struct {
	object
	eng *verbs.ConnRequest
}

func (*listener) String() string { return "listener" }

func (l *listener) numbers() (kind, object string) {
	return "listener", fmt.Sprintf("listenern %d address %v", l.handle, l.eng.Addr())
}

func (*request) String() string { return "connection request" }

// beginConnect marks a queue pair as connecting, so that it is neither destroyed nor connected twice in the meantime.
// It posts the receives in its ring, because the peer may send at once. ird and ord are those of the connection. The
// context of the attempt is done when ctx is, or when the program moves the queue pair to ERR.
func (s *Session) beginConnect(ctx context.Context, h control.Handle, ird, ord int) (
	context.Context, *qp, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := newAttempt(cancel)
	s.mu.Lock()
	q, err := findLocked[*qp](s, h)
	if err == nil {
		err = q.unusedLocked()
	}
	if err == nil && s.stopping {
		err = ErrShutdown
	}
	if err == nil {
		err = q.eng.SetReadDepth(ird, ord)
	}
	if err == nil {
		q.attempt = a
	}
	s.mu.Unlock()
	if err != nil {
		a.cancel()
		return ctx, q, err
	}
	s.drain(q)
	return ctx, q, nil
}

// endConnect ends the attempt that beginConnect began, and returns the result for the program. err is the error of the
// attempt; nil means that q is connected.
func (s *Session) endConnect(q *qp, err error) (any, error) {
	s.endAttempt(q, err == nil || isDone(q.eng.Done()))
	if err != nil {
		s.activateLater(q) // sends may be in the ring, to be flushed
		return nil, err
	}
	s.drain(q)
	return control.Connected{Local: q.eng.LocalAddr(), Remote: q.eng.RemoteAddr(),
		Params: q.eng.Params()}, nil
}

// connectTimeout limits an attempt to connect. It is Linux's default (tcp_syn_retries).
const connectTimeout = 127 * time.Second

var errNoAnswer = fmt.Errorf("%w: the peer did not answer", syscall.ETIMEDOUT)

// resolve waits until the next hop towards an address is resolved, at most for the program's timeout.
func (s *Session) resolve(ctx context.Context, a *control.ResolveArgs) (any, error) {
	if !a.Remote.IsValid() || a.Timeout < 0 || a.Timeout > control.MaxResolve {
		return nil, fmt.Errorf("%w: resolve needs a remote address and a timeout of 0 to %d ms",
			verbs.ErrInvalid, control.MaxResolve)
	}
	wait := time.Duration(a.Timeout) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoAnswer)
	defer cancel()
	return nil, s.throttle(ctx, func() error {
		return s.dev.Core.Resolve(ctx, a.Remote.Addr())
	})
}

func (s *Session) connect(ctx context.Context, a *control.ConnectArgs) (any, error) {
	if !a.Remote.IsValid() || a.Remote.Port() == 0 {
		return nil, fmt.Errorf("%w: connect needs a remote address with a port", verbs.ErrInvalid)
	}
	if a.Patience < 0 || a.Patience > control.MaxPatience {
		return nil, fmt.Errorf("%w: connect: patience of %d ms exceeds %d",
			verbs.ErrInvalid, a.Patience, control.MaxPatience)
	}
	if err := checkRendezvous(a.Remote.Port()); err != nil {
		return nil, err
	}
	if a.Local.Port() != 0 {
		if err := s.checkPort(a.Local.Port()); err != nil {
			return nil, err
		}
	}
	if err := s.checkLocal(a.Remote); err != nil {
		return nil, err
	}
	ctx, q, err := s.beginConnect(ctx, a.QP, a.IRD, a.ORD)
	if err != nil {
		return nil, err
	}
	err = s.throttle(ctx, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoAnswer)
		defer cancel()
		return s.dev.Core.Dial(ctx, a.Remote, q.eng, verbs.DialConfig{
			Local: a.Local, TryPort: a.TryPort, PrivateData: a.PrivateData, MPA: a.MPA,
			Patience: time.Duration(a.Patience) * time.Millisecond, DSCP: s.dscp(a.DSCP),
		})
	})
	return s.endConnect(q, err)
}

// checkLocal refuses a tenant's connection to an address and port of this host on which no device of the daemon
// listens. A tenant may be in its own network namespace, without access to other services of this host.
func (s *Session) checkLocal(remote netip.AddrPort) error {
	if s.account.Tenant == "" || !s.dev.IsLocal(remote.Addr()) ||
		slices.ContainsFunc(s.d.Devices(), func(v *device.Device) bool {
			return v.Core.Listens(remote)
		}) {
		return nil
	}
	return verbs.Wrap(fmt.Sprintf("rdma_connect to %v", remote),
		fmt.Errorf("%w: no xwarpd program listens there", unix.ECONNREFUSED))
}

// throttle charges the user for an attempt to connect until it has ended, and calls try when the user's rate of
// attempts allows it. The operator has no such rate.
func (s *Session) throttle(ctx context.Context, try func() error) error {
	if err := s.reserve(connectCost); err != nil {
		return err
	}
	defer s.account.Release(connectCost)
	if !s.account.Operator {
		if err := s.account.WaitTurn(ctx, s.limits().ConnectRate); err != nil {
			return err
		}
	}
	return try()
}

// dscp returns the class of a connection: what the program asks for, or the user's. Zero means that of the device.
func (s *Session) dscp(asked int) int { return cmp.Or(asked, s.limits().DSCP) }

// mayListen reports whether the limits allow a port.
func mayListen(l *config.Limits, port uint16) bool {
	return ranges.Contain(strings.Join(l.Ports, ","), uint64(port))
}

// checkRendezvous returns an error for the rendezvous port, which programs may not use: peers trust that a daemon
// speaks there, and what it says about the owner of a queue pair number.
func checkRendezvous(port uint16) error {
	if port == rendezvous.Port {
		return control.Errorf(control.CodePermission,
			"TCP port %d is reserved for the daemons, for queue pairs of ibv_modify_qp", port)
	}
	return nil
}

func (s *Session) checkPort(port uint16) error {
	if err := checkRendezvous(port); err != nil {
		return err
	}
	if l := s.limits(); !s.account.Operator && !mayListen(&l, port) {
		return control.Errorf(control.CodePermission,
			"%v may not use port %d, only %v (limits.ports, or ports in a [[user]] table)",
			s.account.Holder, port, l.Ports)
	}
	return nil
}

// checkWildcard refuses a listener on all addresses to users without limits.wildcard. On kernel sockets the kernel
// decides.
func (s *Session) checkWildcard(a netip.Addr) error {
	if !a.Unmap().IsUnspecified() || s.account.Operator ||
		s.dev.Config.Transport == config.TransportKernel || s.limits().Wildcard {
		return nil
	}
	return control.Errorf(control.CodePermission,
		"%v may not listen on %v: bind an address of this host (or set limits.wildcard, or "+
			"wildcard in a [[user]] table)", s.account.Holder, a)
}

func (s *Session) listen(a *control.ListenArgs) (any, error) {
	if !a.Addr.IsValid() || a.Backlog < 0 || a.Backlog > control.MaxBacklog {
		return nil, fmt.Errorf("%w: listen on %v: backlog %d, at most %d",
			verbs.ErrInvalid, a.Addr, a.Backlog, control.MaxBacklog)
	}
	if err := s.checkPort(a.Addr.Port()); err != nil {
		return nil, err
	}
	if err := s.checkWildcard(a.Addr.Addr()); err != nil {
		return nil, err
	}
	a.Backlog = cmp.Or(a.Backlog, verbs.DefaultBacklog)
	l := &listener{object: object{cost: s.listenerCost(a.Backlog)}}
	var err error
	a.DSCP = s.dscp(a.DSCP)
	if l.eng, err = charge(s, l.cost, func() (verbs.Listener, error) {
		return s.dev.Core.Listen(a.Addr, a.ListenConfig)
	}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	stopping := s.stopping
	if !stopping {
		s.addObject(l)
	}
	s.mu.Unlock()
	if stopping {
		return nil, errors.Join(s.closeListener(l), ErrShutdown)
	}
	s.log.Info("a program listens for RDMA_CM connections", "local", l.eng.Addr())
	return control.ListenResult{Handle: l.handle, Addr: l.eng.Addr()}, nil
}

func (s *Session) closeListener(l *listener) error {
	err := l.eng.Close()
	s.account.Release(l.cost)
	return err
}

// acceptRequest waits for a connection request of the listener, charges it to the user, and returns its handle. It
// rejects the request if control.MaxBacklog others already wait for the program's answer.
func (s *Session) acceptRequest(ctx context.Context, a *control.Object) (any, error) {
	l, err := find[*listener](s, a.Handle)
	if err != nil {
		return nil, err
	}
	cost := s.requestCost()
	c, err := charge(s, cost, func() (*verbs.ConnRequest, error) { return l.eng.Accept(ctx) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.connRequests >= control.MaxBacklog {
		s.mu.Unlock()
		s.account.Release(cost)
		c.Reject(nil)
		return nil, control.Errorf(control.CodeQuota,
			"%d connection requests are already waiting for an answer",
			control.MaxBacklog)
	}
	s.connRequests++
	h := s.addObject(&request{object{cost: cost}, c})
	s.mu.Unlock()
	return control.RequestResult{Handle: h, ConnRequest: *c}, nil
}

// takeRequest removes a connection request from the table, because it can be answered only once. It fails if the
// request is not there any more.
func (s *Session) takeRequest(h control.Handle) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.objects[h].(*request)
	if !ok {
		return nil, control.Errorf(control.CodeLapsed, "%v", verbs.ErrLapsed)
	}
	s.removeObject(q)
	s.connRequests--
	s.account.Release(q.cost) // the queue pair's cost includes that of a connection
	return q, nil
}

func (s *Session) accept(ctx context.Context, a *control.AcceptArgs) (any, error) {
	ctx, q, err := s.beginConnect(ctx, a.QP, a.IRD, a.ORD)
	if err != nil {
		return nil, err
	}
	c, err := s.takeRequest(a.Handle)
	if err == nil {
		err = s.throttle(ctx, func() error { return c.eng.Accept(ctx, q.eng, a.PrivateData) })
		if err != nil {
			c.eng.Reject(nil) // the program can no longer answer it
		}
	}
	return s.endConnect(q, err)
}

func (s *Session) reject(a *control.AcceptArgs) error {
	c, err := s.takeRequest(a.Handle)
	if err != nil {
		return err
	}
	if err := c.eng.Reject(a.PrivateData); err != nil {
		return err
	}
	s.log.Info("program rejected a connection", "program", s.program, "remote", c.eng.Remote)
	return nil
}
