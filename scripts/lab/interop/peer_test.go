package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// peer is a queue pair of xwarp that plays one side of an rdma-core program.
type peer struct {
	t    *testing.T
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	busy int // posted send work requests that are not complete yet
	// received is called with the completion of each successful receive.
	received func(verbs.Completion)
	flushed  bool // a receive was flushed, so the connection has ended
	// closing, when set, reports whether the other side has announced its close. Work requests that then fail are not
	// an error.
	closing func() bool
}

func newPeer(t *testing.T, dev verbs.Device, depth int) *peer {
	t.Helper()
	p := &peer{t: t, dev: dev}
	var err error
	if p.pd, err = dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if p.cq, err = dev.CreateCQ(4 * depth); err != nil {
		t.Fatal(err)
	}
	if p.qp, err = dev.CreateQP(verbs.QPConfig{PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		SendDepth: depth, RecvDepth: depth, IRD: 1, ORD: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.qp.Close() })
	return p
}

func (p *peer) register(mem []byte, access ddp.Access) verbs.MR {
	p.t.Helper()
	mr, err := p.pd.RegMR(mem, access)
	if err != nil {
		p.t.Fatal(err)
	}
	return mr
}

// serve accepts one connection at the address at and answers with private. It calls started when it listens, and
// returns the client's private data.
func (p *peer) serve(ctx context.Context, at netip.AddrPort, private []byte, started func() error) (
	[]byte, error) {
	l, err := p.dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := started(); err != nil {
		return nil, err
	}
	r, err := l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return r.PrivateData, r.Accept(ctx, p.qp, private)
}

func (p *peer) post(wr verbs.SendWR) error {
	wr.Flags |= rdmap.Signaled
	err := p.qp.PostSend(&wr)
	if err == nil {
		p.busy++
	}
	return err
}

// until handles completions until done returns true. It fails if the connection ends earlier.
func (p *peer) until(ctx context.Context, done func() bool) error {
	var c [16]verbs.Completion
	for !done() {
		n, err := p.cq.Wait(ctx, c[:])
		if err != nil {
			return err
		}
		for i := range c[:n] {
			if c[i].Op != rdmap.WRRecv {
				p.busy--
			}
			switch {
			case c[i].Status == rdmap.WRFlushErr && c[i].Op == rdmap.WRRecv:
				p.flushed = true
			case c[i].Status != rdmap.Success && p.closing != nil && p.closing():
			case c[i].Status != rdmap.Success:
				return errors.Join(fmt.Errorf("%v of the %v", c[i].Status, c[i].Op), p.qp.Err())
			case c[i].Op == rdmap.WRRecv:
				p.received(c[i])
			}
		}
		if p.flushed && !done() {
			return errors.Join(errors.New("the connection closed"), p.qp.Err())
		}
	}
	return nil
}

// gone waits until the connection is closed. It returns an error if it was not closed gracefully.
func (p *peer) gone(ctx context.Context) error {
	if err := p.until(ctx, func() bool { return p.flushed }); err != nil {
		return err
	}
	return p.qp.Err()
}

// disconnect closes the connection and waits until it is closed.
func (p *peer) disconnect(ctx context.Context) error {
	if err := p.qp.Disconnect(); err != nil {
		return err
	}
	return p.gone(ctx)
}

func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
