package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// Client is a connection to a server. One transfer runs at a time.
type Client struct {
	*link
	memory verbs.MR // BufferLen bytes; closed by the link
	buffer Message  // the server's Region for its buffer; zero if not requested yet
}

// Dial connects to a server. The connection ends if the server is inactive for idle; 0 means DefaultIdle.
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
	if c.memory, err = l.end.Buffer(BufferLen, verbs.LocalWrite); err == nil {
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

// errMemory is returned if the peer's Reply announces exported memory, so that it is not a server of this package.
var errMemory = errors.New("the peer exports memory (serve = \"memory\") and does not support cp: " +
	"use the port of xwarp serve, or of an export with serve = \"directory\"")

// Over reports whether the connection has ended.
func (c *Client) Over() bool { return c.ended() }

// Close ends the connection. It may be called again.
func (c *Client) Close() error {
	c.link.shut()
	return c.end.Close()
}

// errCut is wrapped by errors caused by the end of the connection.
var errCut = errors.New("the connection ended")

// reason returns the error to report for err, which an operation returned. If the end of the connection caused err, it
// is the Error that the server sent, or else err with the cause of the end.
func (c *Client) reason(ctx context.Context, err error) error {
	if err == nil || !errors.Is(err, errCut) && !errors.Is(err, verbs.ErrClosed) && !c.ended() {
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

// abandon sends err to the server, which then ends the connection, and returns err.
func (c *Client) abandon(err error) error {
	c.postMessage(&Message{Type: TypeError, Code: CodeInternal, Text: err.Error()})
	return err
}

// do moves n bytes between the start of the client's memory and the server's memory at stag and to, by one RDMA Write
// or Read.
func (c *Client) do(ctx context.Context, op verbs.WROp, n int, stag ddp.STag, to ddp.TO) error {
	moving, stop := c.untilClosed(ctx)
	defer stop()
	c.posted.Add(1)
	_, err := c.end.Do(moving, &verbs.SendWR{Op: op, SGL: []verbs.SGE{c.memory.SGE(0, n)},
		RemoteSTag: stag, RemoteTO: to})
	if _, failed := errors.AsType[*verbs.StatusError](err); failed {
		err = fmt.Errorf("%w: %w", err, errCut)
	}
	return c.reason(ctx, err)
}
