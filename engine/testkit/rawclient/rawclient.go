// Package rawclient is a client that speaks the daemon's control protocol directly, for tests of the daemon.
package rawclient

import (
	"net"
	"testing"

	"xwarp/engine/daemon/control"
)

// Client is a session of a program. Only one goroutine may use it.
type Client struct {
	*control.Socket
	last uint64 // ID of the last request
}

// Dial connects to a daemon and opens a session for a device; an empty name means the daemon's first. It is closed at
// the end of the test.
func Dial(t testing.TB, socket, device string) *Client {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &Client{Socket: control.NewSocket(c.(*net.UnixConn), control.MaxRequest)}
	t.Cleanup(func() { r.Close() })
	if err := r.Ask(control.OpHello,
		&control.HelloArgs{Version: control.Version, Device: device}); err != nil {
		t.Fatal(err)
	}
	return r
}

// Exchange sends a request with descriptors and returns the reply and its descriptors, which the caller closes.
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

// Ask sends a request and returns the error of the reply or of the connection.
func (c *Client) Ask(op control.Op, args any) error {
	reply, files, err := c.Exchange(op, control.Marshal(args))
	control.CloseAll(files)
	if err == nil && reply.Error != nil {
		return reply.Error
	}
	return err
}
