// Package rawclient is a program that speaks the daemon's control protocol by hand, for tests of the daemon.
package rawclient

import (
	"net"
	"testing"

	"xwarp/engine/daemon/control"
)

// Client is a program. One goroutine uses it.
type Client struct {
	*control.Conn
	last uint64 // ID of the last request
}

// Dial connects to a daemon and opens a session for a device; an empty name is the daemon's first. The end of the test
// closes it.
func Dial(t testing.TB, socket, device string) *Client {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &Client{Conn: control.NewConn(c.(*net.UnixConn), control.MaxRequest)}
	t.Cleanup(func() { r.Close() })
	if err := r.Ask(control.OpHello,
		&control.HelloArgs{Version: control.Version, Device: device}); err != nil {
		t.Fatal(err)
	}
	return r
}

// Exchange sends a request with descriptors and returns its reply, and the descriptors with it, which are the caller's.
func (c *Client) Exchange(op control.Op, args []byte, files ...int) (reply control.Reply, got []int,
	err error) {
	c.last++
	q := control.Request{ID: c.last, Op: op, Args: args}
	if err := c.Send(control.KindRequest, control.Marshal(&q), files...); err != nil {
		return reply, nil, err
	}
	_, body, got, err := c.Receive()
	if err == nil {
		reply, err = control.ParseReply(body)
	}
	return reply, got, err
}

// Ask sends a request and returns the error of its reply, or of the connection.
func (c *Client) Ask(op control.Op, args any) error {
	reply, files, err := c.Exchange(op, control.Marshal(args))
	control.CloseAll(files)
	if err == nil && reply.Error != nil {
		return reply.Error
	}
	return err
}
