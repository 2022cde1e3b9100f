package core

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"xwarp/engine/host/ports"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
)

// Dial implements verbs.Device.
func (d *Device) Dial(ctx context.Context, remote netip.AddrPort, qp verbs.QP,
	cfg verbs.DialConfig) error {
	q, err := d.qp(qp)
	if err == nil && d.isClosed() {
		err = verbs.ErrClosed
	}
	if err == nil && cfg.DSCP != 0 && !q.hasReached(lifeAttached) { // if q is attached, dial fails
		err = q.SetDSCP(cfg.DSCP)
	}
	if err == nil {
		err = d.dial(ctx, remote, q, &cfg)
	}
	return verbs.Wrap(fmt.Sprintf("rdma_connect to %v", remote), err)
}

// qp returns the QP of this device behind the interface. It fails for those of other devices.
func (d *Device) qp(qp verbs.QP) (*QP, error) {
	if q, _ := qp.(*QP); q != nil && q.dev == d {
		return q, nil
	}
	return nil, verbs.ErrForeign
}

func (d *Device) dial(ctx context.Context, remote netip.AddrPort, q *QP,
	cfg *verbs.DialConfig) error {
	return d.dialCharged(remote, q, cfg, func(m *verbs.MPAConfig) error {
		return d.dialWithRetries(ctx, remote, q, cfg, m)
	})
}

// Attempt is Dial without retries, except from other ports. It ignores cfg.DSCP, cfg.TryPort and cfg.Patience. If it
// fails, q is unchanged, so that another attempt may follow.
func (d *Device) Attempt(ctx context.Context, remote netip.AddrPort, q *QP,
	cfg *verbs.DialConfig) error {
	return d.dialCharged(remote, q, cfg, func(m *verbs.MPAConfig) (err error) {
		for ports := 0; ports < MaxPorts; ports++ {
			_, err = d.dialOnce(ctx, remote, q, cfg, m)
			if !TryAnotherPort(err, cfg.Local) {
				break
			}
		}
		return err
	})
}

// dialCharged calls connect with the MPA options that the peer is known to accept, and charges the peer for the
// connection.
func (d *Device) dialCharged(remote netip.AddrPort, q *QP, cfg *verbs.DialConfig,
	connect func(*verbs.MPAConfig) error) error {
	m, err := d.mpaConfig(cfg.MPA, remote.Addr())
	if err != nil {
		return err
	}
	charge, err := d.opt.Peers.Dial(remote.Addr(), Now())
	if err != nil {
		return PeerDenied(err)
	}
	d.fallbacks.apply(remote, &m, Now())
	if err := connect(&m); err != nil {
		charge.End(Now())
		return err
	}
	q.setPeerCharge(charge)
	return nil
}

// dialWithRetries dials. It tries again without an MPA option that the peer refused, unless m.SingleAttempt is set;
// from another port if the port cannot be used; and until cfg.Patience is over if the peer refuses the TCP connection
// or, once, if it closes the connection before its MPA Reply.
func (d *Device) dialWithRetries(ctx context.Context, remote netip.AddrPort, qp *QP,
	cfg *verbs.DialConfig, m *verbs.MPAConfig) error {
	guess := startup.RetryNone // option that the peer may have rejected
	begin, wasClosed := time.Now(), false
	at := *cfg
	if at.Local.Addr().IsValid() && at.Local.Port() == 0 && ports.IsEphemeral(at.TryPort) {
		at.Local = netip.AddrPortFrom(at.Local.Addr(), at.TryPort)
	}
	for attempt, tries := 0, 1; ; attempt++ {
		c, err := d.dialOnce(ctx, remote, qp, &at, m)
		closed := closedByPeer(err)
		switch {
		case TryAnotherPort(err, cfg.Local) && tries < MaxPorts,
			at.Local != cfg.Local && isPortTaken(err):
			at.Local = cfg.Local
			attempt--
			tries++
			continue
		case (isRefused(err) || closed && !wasClosed) && time.Since(begin) < cfg.Patience &&
			ctx.Err() == nil:
			wasClosed = wasClosed || closed
			attempt--
			time.Sleep(patienceStep)
			continue
		case err == nil:
			if guess != startup.RetryNone {
				d.fallbacks.learn(remote, guess, Now())
			}
			return nil
		}
		if c == nil || m.SingleAttempt || attempt == maxAttempts || ctx.Err() != nil {
			qp.GiveUp(err)
			return err
		}
		switch c.retry {
		case startup.RetryRevision1:
			m.Revision = startup.RevIETF
		case startup.RetryNoMarkers:
			m.Markers = verbs.MarkersOff
		default:
			qp.GiveUp(err)
			return err
		}
		if errors.Is(err, verbs.ErrRejected) {
			guess = c.retry // perhaps the consumer rejected: learn only if the next attempt succeeds
		} else {
			d.fallbacks.learn(remote, c.retry, Now())
		}
		d.log.Info("connecting again without refused options", "remote", remote, "without",
			c.retry, "because", err)
		time.Sleep(patienceStep)
	}
}

// patienceStep is the interval of attempts to connect to a port that refuses connections, or that refused an MPA
// option. Linux's siw with a backlog of 1 loses a connection that arrives while it handles the previous one.
const patienceStep = 20 * time.Millisecond

// isPortTaken reports whether a source port cannot be used now.
func isPortTaken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// isRefused reports whether the peer refused the TCP connection, as it does without a listener at the port.
func isRefused(err error) bool {
	return errors.Is(err, tcp.CauseRefused) ||
		errors.Is(err, verbs.ErrConnect) && errors.Is(err, syscall.ECONNREFUSED)
}

// closedByPeer reports whether the peer closed the connection before it answered. A listener that is being closed does
// so, as does a peer that does not understand the Request.
func closedByPeer(err error) bool {
	return errors.Is(err, verbs.ErrStartup) &&
		errors.Is(err, &ulpdu.Error{Layer: ulpdu.MPA, Code: ulpdu.CodeClosed})
}

// maxAttempts is the maximum number of retries of Dial: once without markers, once without revision 2.
const maxAttempts = 2

func (d *Device) dialOnce(ctx context.Context, remote netip.AddrPort, qp *QP, cfg *verbs.DialConfig,
	m *verbs.MPAConfig) (*Conn, error) {
	c := qp.newActiveConn(remote, m, cfg.PrivateData)
	if err := d.drv.Start(ctx, c, cfg.Local, remote); err != nil {
		return nil, err
	}
	return c, c.await(ctx)
}

// MaxPorts is the maximum number of ports that an active open tries. A port cannot be used while it has a connection to
// the same peer in TIME-WAIT, which does not occupy the port in the kernel. The kernel picks ports at random, with
// repeats. If one port in 16 can be used, 64 tries fail for 1.6 % of the dials, and 256 for less than one in ten
// million.
const MaxPorts = 256

// TryAnotherPort reports whether an active open that failed with err may succeed from another port: the port that was
// picked has a connection to the peer, and the caller did not ask for a port (that of local is 0).
func TryAnotherPort(err error, local netip.AddrPort) bool {
	return errors.Is(err, tcp.ErrTupleInUse) && local.Port() == 0
}
