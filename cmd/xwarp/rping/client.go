package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"xwarp/engine/verbs"
)

// Client pings the server at remote until cfg.Count iterations are done or ctx ends. After an error the Result holds
// the iterations up to then.
func Client(ctx context.Context, dev verbs.Device, remote netip.AddrPort, cfg Config) (res Result,
	err error) {
	if err := cfg.Complete(); err != nil {
		return res, err
	}
	e, err := newEnd(dev, &cfg)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	access := verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite
	source, err := e.Buffer(cfg.Size, access)
	if err != nil {
		return res, err
	}
	sink, err := e.Buffer(cfg.Size, access)
	if err != nil {
		return res, err
	}
	cfg.debug("rdma_connect to %v", remote)
	if err := e.connect(ctx, remote); err != nil {
		return res, err
	}
	cfg.debug("ESTABLISHED")
	res.connected(e.QP)
	for n := 0; cfg.Count == 0 || n < cfg.Count; n++ {
		if err := e.ping(ctx, source, sink, n%maxCount); err != nil {
			return res, err
		}
		res.done(cfg.Size)
	}
	res.Validated = cfg.Validate
	return res, e.disconnect(ctx)
}

// connect dials within the time that the configuration gives.
func (e *end) connect(ctx context.Context, remote netip.AddrPort) error {
	if most := e.cfg.ConnectTimeout; most > 0 {
		late := fmt.Errorf("no connection within %v: is an rping -s there, and does nothing "+
			"between filter the port?", most)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, late)
		defer cancel()
	}
	if err := e.Dial(ctx, remote, e.cfg.Conn); err != nil {
		return err
	}
	if _, err := e.RemoteMR(); err == nil {
		return errors.New("the peer gives memory for RDMA Reads and Writes, as an export of xwarpd " +
			"does: no rping -s listens there")
	}
	return nil
}

// ping is one iteration of the client.
func (e *end) ping(ctx context.Context, source, sink verbs.MR, n int) error {
	Fill(source.Bytes(), n)
	for i, mr := range []verbs.MR{source, sink} {
		show := info(mr, e.cfg.Size)
		if err := e.sent(ctx); err != nil {
			return err
		}
		if err := e.postSend(show); err != nil {
			return err
		}
		e.cfg.debug("sent %s %v", [...]string{"source", "sink"}[i], show)
		if _, err := e.await(ctx); err != nil {
			return err
		}
		e.cfg.debug("received go-ahead")
	}
	if err := e.sent(ctx); err != nil {
		return err
	}
	if e.cfg.Validate {
		if err := compare(sink.Bytes(), n); err != nil {
			return err
		}
	}
	if e.cfg.Ping != nil {
		e.cfg.Ping(text(sink.Bytes()))
	}
	return nil
}
