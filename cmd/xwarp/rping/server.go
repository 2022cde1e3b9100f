package rping

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"xwarp/ddp/rdmap"
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
	return serve(ctx, dev, r, cfg, nil)
}

// ServeAll serves any number of connections at a time until ctx ends or l is closed. report, when set, is called at
// the end of each, one at a time.
func ServeAll(ctx context.Context, dev verbs.Device, l verbs.Listener, cfg Config,
	report func(Result, error)) error {
	if err := cfg.Complete(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	room := make(chan struct{}, maxServed)
	for {
		r, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, verbs.ErrListenerClosed) {
				return nil
			}
			return err
		}
		select {
		case room <- struct{}{}:
		default:
			cfg.debug("rejected %v: %d connections are served already", r.Remote, maxServed)
			r.Reject(nil)
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			res, err := serve(ctx, dev, r, cfg, func() bool { return len(room) == cap(room) })
			if report != nil {
				mu.Lock()
				defer mu.Unlock()
				report(res, err)
			}
		})
	}
}

// serve is the life of one connection. wanted, when set, reports whether others find no place.
func serve(ctx context.Context, dev verbs.Device, r *verbs.ConnRequest, cfg Config,
	wanted func() bool) (res Result, err error) {
	res.Local, res.Remote = r.Local, r.Remote
	e, err := newEnd(dev, &cfg)
	if err != nil {
		r.Reject(nil)
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	e.wanted, e.silence = wanted, maxSilence
	buf, err := e.Buffer(MaxSize, verbs.LocalWrite)
	if err != nil {
		r.Reject(nil)
		return res, err
	}
	cfg.debug("accepting client connection request from %v", r.Remote)
	if err := r.Accept(ctx, e.QP, nil); err != nil {
		return res, err
	}
	cfg.debug("ESTABLISHED")
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
	cfg.debug("DISCONNECTED")
	res.Validated = cfg.Validate
	return res, nil
}

// pong is one iteration of the server, which began with the client's source.
func (e *end) pong(ctx context.Context, buf verbs.MR, source Info, n int) error {
	e.cfg.debug("received source %v", source)
	if source.Size == 0 || source.Size > MaxSize {
		return fmt.Errorf("the client shows a source of %d bytes; rping's have %d to %d",
			source.Size, MinSize, MaxSize)
	}
	size := int(source.Size)
	if e.writing { // from the same memory
		e.writing = false
		if err := e.complete(ctx, rdmap.WRWrite); err != nil {
			return err
		}
	}
	if err := e.transfer(rdmap.WRRead, buf, size, source); err != nil {
		return err
	}
	if err := e.complete(ctx, rdmap.WRRead); err != nil {
		return err
	}
	e.cfg.debug("read of %d bytes complete", size)
	data := buf.Bytes()[:size]
	if e.cfg.Validate {
		if err := compare(data, n); err != nil {
			return err
		}
	}
	if e.cfg.Ping != nil {
		e.cfg.Ping(text(data))
	}
	if err := e.goAhead(ctx); err != nil {
		return err
	}
	sink, err := e.await(ctx)
	if err != nil {
		return err
	}
	e.cfg.debug("received sink %v", sink)
	n = min(len(text(data))+1, size)
	if n > int(sink.Size) {
		return fmt.Errorf("the client shows a sink of %d bytes for %d", sink.Size, n)
	}
	// rping waits for the Write's completion here. Ours comes with TCP's acknowledgement, which the client
	// delays until it has something to say; the go-ahead stays behind the Write all the same.
	if err := e.transfer(rdmap.WRWrite, buf, n, sink); err != nil {
		return err
	}
	e.cfg.debug("posted write of %d bytes", n)
	e.writing = true
	return e.goAhead(ctx)
}

func (e *end) goAhead(ctx context.Context) error {
	if err := e.sent(ctx); err != nil {
		return err
	}
	e.cfg.debug("sent go-ahead")
	return e.postSend(Info{})
}
