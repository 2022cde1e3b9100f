package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// EndpointConfig describes an Endpoint. Where PD, SendCQ or RecvCQ is nil, the endpoint creates its own, with room for
// twice the work requests that may be outstanding, and closes it.
type EndpointConfig struct {
	QPConfig
	// SharedCQ makes receives complete on SendCQ. False gives them a completion queue of their own.
	SharedCQ bool
}

// Endpoint is one end of a connection: a queue pair with its queues, domain and registered memory. Buffer, Register,
// Deregister and Close belong to one goroutine at a time; any goroutine may call the other methods. Objects that
// the endpoint did not create must stay open until Close returns.
type Endpoint struct {
	Dev    Device
	PD     PD
	SendCQ CQ
	RecvCQ CQ
	QP     QP

	regions []region
	own     []interface{ Close() error } // objects that Close closes: completion queues, then the domain
}

type region struct {
	mr      MR
	release func() error
}

// NewEndpoint creates an endpoint on dev. Receives may be posted before Dial or Accept connects it.
func NewEndpoint(dev Device, cfg EndpointConfig) (*Endpoint, error) {
	e := &Endpoint{Dev: dev, PD: cfg.PD, SendCQ: cfg.SendCQ, RecvCQ: cfg.RecvCQ}
	if err := e.create(cfg); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Endpoint) create(cfg EndpointConfig) (err error) {
	full := cfg.Complete()
	if cfg.SharedCQ {
		full.SendDepth += full.RecvDepth
	}
	if e.SendCQ == nil {
		if e.SendCQ, err = e.Dev.CreateCQ(2 * full.SendDepth); err != nil {
			return err
		}
		e.own = append(e.own, e.SendCQ)
	}
	if cfg.SharedCQ {
		e.RecvCQ = e.SendCQ
	}
	if e.RecvCQ == nil {
		if e.RecvCQ, err = e.Dev.CreateCQ(2 * full.RecvDepth); err != nil {
			return err
		}
		e.own = append(e.own, e.RecvCQ)
	}
	if e.PD == nil {
		if e.PD, err = e.Dev.AllocPD(); err != nil {
			return err
		}
		e.own = append(e.own, e.PD)
	}
	cfg.PD, cfg.SendCQ, cfg.RecvCQ = e.PD, e.SendCQ, e.RecvCQ
	e.QP, err = e.Dev.CreateQP(cfg.QPConfig)
	return err
}

// Buffer returns a region of n zeroed bytes of the device's memory. Close closes and frees it.
func (e *Endpoint) Buffer(n int, access Access) (MR, error) {
	mem, err := e.Dev.Alloc(n)
	if err != nil {
		return nil, err
	}
	mr, err := e.Register(mem, access, func() error { return IgnoreClosed(e.Dev.Free(mem)) })
	if err != nil {
		return nil, errors.Join(err, e.Dev.Free(mem))
	}
	return mr, nil
}

// Register registers memory of the caller. Close closes the region and then calls release, when no peer can access the
// memory any more.
func (e *Endpoint) Register(mem []byte, access Access, release func() error) (MR, error) {
	mr, err := e.PD.RegMR(mem, access)
	if err == nil {
		e.regions = append(e.regions, region{mr, release})
	}
	return mr, err
}

// Deregister closes a region made by Register and returns the memory to the caller: release is not called. It fails
// when MR.Close fails; the region then stays, and Endpoint.Close closes it and calls release.
func (e *Endpoint) Deregister(mr MR) error {
	err := IgnoreClosed(mr.Close())
	if err == nil {
		e.regions = slices.DeleteFunc(e.regions, func(r region) bool { return r.mr == mr })
	}
	return err
}

// Dial connects the endpoint to a listener at addr, as Device.Dial does.
func (e *Endpoint) Dial(ctx context.Context, addr netip.AddrPort, cfg DialConfig) error {
	return e.Dev.Dial(ctx, addr, e.QP, cfg)
}

// Accept accepts the next connection request of l, with private data for the peer.
func (e *Endpoint) Accept(ctx context.Context, l Listener, private []byte) error {
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	return r.Accept(ctx, e.QP, private)
}

// RemoteMR returns the region that the peer described in the private data of its request or reply. It fails with
// ErrRemoteMR if the private data is something else, and with ErrNotReady before there is a connection.
func (e *Endpoint) RemoteMR() (RemoteMR, error) {
	p := e.QP.Params()
	if p == nil {
		return RemoteMR{}, ErrNotReady
	}
	return ParseRemoteMR(p.PrivateData)
}

// Do posts wr and returns its completion. It needs exclusive use of SendCQ: no receive or other work request may
// complete there in the meantime.
func (e *Endpoint) Do(ctx context.Context, wr *SendWR) (Completion, error) {
	signaled := *wr
	signaled.Flags |= Signaled
	if err := e.QP.PostSend(&signaled); err != nil {
		return Completion{}, err
	}
	c, err := e.Wait(ctx, e.SendCQ)
	if err == nil && (c.Op != wr.Op || c.ID != wr.ID) {
		err = fmt.Errorf("completion of %v %d, want %v %d: other work requests complete on the "+
			"same queue", c.Op, c.ID, wr.Op, wr.ID)
	}
	return c, err
}

// Recv waits for the next receive to complete.
func (e *Endpoint) Recv(ctx context.Context) (Completion, error) { return e.Wait(ctx, e.RecvCQ) }

// Wait waits for the next completion of cq, which is SendCQ or RecvCQ. A failed completion is returned with a
// *StatusError that has the cause of the connection's end.
func (e *Endpoint) Wait(ctx context.Context, cq CQ) (Completion, error) {
	c, err := WaitOne(ctx, cq)
	if c.Status != Success {
		e.Cause()
		err = c.Err()
	}
	return c, err
}

// causeWait is how long Cause waits for the end of the connection after a failed completion.
const causeWait = time.Second

// Cause returns why the connection ended, as QP.Err does. Because a completion may fail shortly before the connection
// ends, Cause waits up to one second for the end.
func (e *Endpoint) Cause() error {
	select {
	case <-e.QP.Done():
	case <-time.After(causeWait):
	}
	return e.QP.Err()
}

// Disconnect closes the connection as QP.Disconnect does, waits until it has ended, and returns why: nil after a
// graceful close. When ctx is done first, it returns the context's cause.
func (e *Endpoint) Disconnect(ctx context.Context) error {
	if err := e.QP.Disconnect(); err != nil {
		return err
	}
	select {
	case <-e.QP.Done():
		return e.QP.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the connection as QP.Close does and frees everything: the queue pair first, because work requests use
// memory, then regions, completion queues and the domain. Memory whose region cannot be closed is kept, because a peer
// might still access it. On a closed device Close only calls the release functions of Register. It may be called again.
func (e *Endpoint) Close() error {
	var errs []error
	if e.QP != nil {
		errs = append(errs, IgnoreClosed(e.QP.Close()))
	}
	for _, r := range e.regions {
		err := IgnoreClosed(r.mr.Close())
		if err == nil {
			err = r.release()
		}
		errs = append(errs, err)
	}
	for _, o := range e.own {
		errs = append(errs, IgnoreClosed(o.Close()))
	}
	e.regions, e.own = nil, nil
	return errors.Join(errs...)
}

// IgnoreClosed returns nil if err says that the device is closed, which closed everything else, and err otherwise.
func IgnoreClosed(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}
