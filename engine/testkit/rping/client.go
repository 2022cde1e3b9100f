package rping

import (
	"context"
	"errors"
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
	if err := e.Dial(ctx, remote, cfg.Conn); err != nil {
		return res, err
	}
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

// ping is one iteration of the client.
func (e *end) ping(ctx context.Context, source, sink verbs.MR, n int) error {
	Fill(source.Bytes(), n)
	for _, mr := range []verbs.MR{source, sink} {
		if err := e.sent(ctx); err != nil {
			return err
		}
		if err := e.postSend(info(mr, e.cfg.Size)); err != nil {
			return err
		}
		if _, err := e.await(ctx); err != nil {
			return err
		}
	}
	if err := e.sent(ctx); err != nil {
		return err
	}
	if e.cfg.Validate {
		if err := compare(sink.Bytes(), n); err != nil {
			return err
		}
	}
	return nil
}
