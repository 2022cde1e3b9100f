package transfer

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"net/netip"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// Client is a connection to a server. One transfer runs at a time.
type Client struct {
	*link
	buffers verbs.MR // depth buffers of chunk bytes; closed by the link
	buffer  Message  // the server's Region for its buffer; zero if not requested yet
	// Progress, if set, is called with the number of bytes moved. total is -1 if unknown.
	Progress func(done, total int64)
	// Waiting, if set, is called once if the client must wait for its turn.
	Waiting func()
}

// Summary is the result of a successful transfer.
type Summary struct {
	Bytes   int64
	Content int64 // of a get: size of the server's content, whatever was requested
	Sum     Sum
	Took    time.Duration
}

// Dial connects to a server.
func Dial(ctx context.Context, dev verbs.Device, remote netip.AddrPort, idle time.Duration) (
	*Client, error) {
	if idle <= 0 {
		idle = DefaultIdle
	}
	l, err := newLink(dev, idle)
	if err != nil {
		return nil, err
	}
	c := &Client{link: l}
	if c.buffers, err = l.registerLocal(depth * chunk); err == nil {
		err = l.end.Dial(ctx, remote, verbs.DialConfig{})
	}
	if err == nil {
		if _, memory := l.end.RemoteMR(); memory == nil {
			err = errMemory
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	l.startLoops()
	return c, nil
}

// errMemory is returned for a peer whose Reply is not that of a server.
var errMemory = errors.New("the peer exports memory (serve = \"memory\") and does not support put, get or cp: " +
	"use the port of xwarp serve, or of an export with serve = \"transfer\" " +
	"(for cp: \"directory\")")

// Over reports whether the connection has ended.
func (c *Client) Over() bool { return c.ended() }

// Close ends the connection. It may be called again.
func (c *Client) Close() error {
	c.link.shut()
	return c.end.Close()
}

// quietAfter is how long a client waits for the server's answer before it reports that it is waiting.
const quietAfter = 500 * time.Millisecond

// request sends a Put or Get and returns the region that the server grants.
func (c *Client) request(ctx context.Context, m *Message) (Message, error) {
	if err := c.postMessage(m); err != nil {
		return Message{}, c.reason(ctx, err)
	}
	if c.Waiting != nil {
		t := time.AfterFunc(quietAfter, c.Waiting)
		defer t.Stop()
	}
	return c.expect(ctx, TypeRegion)
}

// errCut is wrapped by errors caused by the end of the connection.
var errCut = errors.New("the connection ended")

// reason returns why the connection ended, if that caused the failure err of an operation: the server's own words if
// available.
func (c *Client) reason(ctx context.Context, err error) error {
	if !errors.Is(err, errCut) && !errors.Is(err, verbs.ErrClosed) && !c.ended() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, why := c.receive(ctx)
	switch theirs := (*RemoteError)(nil); {
	case errors.As(why, &theirs):
		return why
	case why != nil && !errors.Is(why, context.DeadlineExceeded) && !errors.Is(err, why):
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// window has the work requests of one transfer, one per buffer, completed in the order of posting.
type window struct {
	c      *Client
	posted int
	done   int
	lens   [depth]int
	moved  int64
	total  int64     // -1: unknown
	sum    hash.Hash // of a put or get
	remote Message   // the region
	asked  int64     // bytes posted
}

func (c *Client) window(region Message, total int64) *window {
	return &window{c: c, remote: region, total: total}
}

// buffer returns the memory of work request i.
func (w *window) buffer(i int) []byte {
	off := i % depth * chunk
	return w.c.buffers.Bytes()[off : off+chunk]
}

// post starts the next work request, with n bytes.
func (w *window) post(op verbs.WROp, n int) error {
	i := w.posted
	err := w.c.link.post(&verbs.SendWR{
		ID: uint64(i), Op: op, Flags: rdmap.Signaled,
		SGL:        []verbs.SGE{w.c.buffers.SGE(i%depth*chunk, n)},
		RemoteSTag: w.remote.STag, RemoteTO: w.remote.TO + ddp.TO(w.asked),
	})
	if err != nil {
		return err
	}
	w.lens[i%depth] = n
	w.posted++
	w.asked += int64(n)
	return nil
}

// read moves total bytes of the region to this end. take is called with consecutive pieces.
func (w *window) read(ctx context.Context, take func(b []byte) error) error {
	for w.moved < w.total {
		for !w.full() && w.asked < w.total {
			if err := w.post(rdmap.WRRead, int(min(chunk, w.total-w.asked))); err != nil {
				return err
			}
		}
		b, err := w.next(ctx)
		if err == nil {
			err = take(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// full reports whether every buffer is in use.
func (w *window) full() bool { return w.posted-w.done == depth }

// next waits for the oldest work request and returns its bytes, valid until the next post.
func (w *window) next(ctx context.Context) ([]byte, error) {
	var c [1]verbs.Completion
	if _, err := w.c.end.SendCQ.Wait(ctx, c[:]); err != nil {
		return nil, err
	}
	if c[0].Status != rdmap.Success {
		return nil, fmt.Errorf("%v at byte %d: %v: %w", c[0].Op, w.moved, c[0].Status,
			errCut)
	}
	i := w.done
	if c[0].ID != uint64(i) {
		return nil, fmt.Errorf("completion of work request %d, want %d", c[0].ID, i)
	}
	n := w.lens[i%depth]
	w.done++
	w.moved += int64(n)
	if w.c.Progress != nil {
		w.c.Progress(w.moved, w.total)
	}
	return w.buffer(i)[:n], nil
}
