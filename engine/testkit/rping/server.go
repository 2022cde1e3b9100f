package rping

import (
	"context"
	"errors"
	"fmt"

	"xwarp/engine/verbs"
)

// Serve accepts one connection from l and serves it until the client closes. After an error the Result holds the
// iterations up to then.
func Serve(ctx context.Context, dev verbs.Device, l verbs.Listener, cfg Config) (res Result,
	err error) {
	if err := cfg.Complete(); err != nil {
		return res, err
	}
	r, err := l.Accept(ctx)
	if err != nil {
		return res, err
	}
	return serve(ctx, dev, r, cfg)
}

// serve serves one connection.
func serve(ctx context.Context, dev verbs.Device, r *verbs.ConnRequest, cfg Config) (res Result,
	err error) {
	res.Remote = r.Remote
	e, err := newEnd(dev, &cfg)
	if err != nil {
		r.Reject(nil)
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	buf, err := e.Buffer(MaxSize, verbs.LocalWrite)
	if err != nil {
		r.Reject(nil)
		return res, err
	}
	if err := r.Accept(ctx, e.QP, nil); err != nil {
		return res, err
	}
	res.connected(e.QP)
	for n := 0; ; n++ {
		source, err := e.await(ctx)
		if errors.Is(err, errClosed) {
			break
		}
		if err != nil {
			return res, err
		}
		if err := e.pong(ctx, buf, source, n); err != nil {
			return res, fmt.Errorf("iteration %d: %w", n, err)
		}
		res.done(int(source.Size))
	}
	res.Validated = cfg.Validate
	return res, nil
}

// pong is one iteration of the server, which began with the client's source.
func (e *end) pong(ctx context.Context, buf verbs.MR, source Info, n int) error {
	if source.Size == 0 || source.Size > MaxSize {
		return fmt.Errorf("the client shows a source of %d bytes; rping's have %d to %d",
			source.Size, minSize, MaxSize)
	}
	size := int(source.Size)
	if e.writing { // the previous Write reads the memory that the Read changes
		e.writing = false
		if err := e.complete(ctx, verbs.WRWrite); err != nil {
			return err
		}
	}
	if err := e.transfer(verbs.WRRead, buf, size, source); err != nil {
		return err
	}
	if err := e.complete(ctx, verbs.WRRead); err != nil {
		return err
	}
	data := buf.Bytes()[:size]
	if e.cfg.Validate {
		if err := compare(data, n); err != nil {
			return err
		}
	}
	if err := e.goAhead(ctx); err != nil {
		return err
	}
	sink, err := e.await(ctx)
	if err != nil {
		return err
	}
	n = min(len(text(data))+1, size)
	if n > int(sink.Size) {
		return fmt.Errorf("the client shows a sink of %d bytes for %d", sink.Size, n)
	}
	// rping waits for the Write's completion here. Ours comes with TCP's acknowledgement, which the client may delay;
	// the go-ahead follows the Write in the stream anyway.
	if err := e.transfer(verbs.WRWrite, buf, n, sink); err != nil {
		return err
	}
	e.writing = true
	return e.goAhead(ctx)
}

func (e *end) goAhead(ctx context.Context) error {
	if err := e.sent(ctx); err != nil {
		return err
	}
	return e.postSend(Info{})
}
