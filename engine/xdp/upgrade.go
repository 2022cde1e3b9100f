package xdp

import (
	"context"
	"fmt"
	"syscall"

	"xwarp/engine/bytestream"
	"xwarp/engine/internal/core"
	"xwarp/engine/overtcp"
	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// ErrBusy is returned by Upgrade and AwaitRequest if bytes after a gap have arrived. The stream is unchanged: the
// caller may try again once the gap is filled, Upgrade with another queue pair.
var ErrBusy = fmt.Errorf(
	"%w: data arrived out of order; retry when the gap is filled", syscall.EBUSY)

// Upgrade starts MPA as initiator on a stream that was used before (delayed start-up, RFC 5044, 7.1.4, figure 9). Bytes
// written earlier are sent first. Bytes that the peer sends from now on belong to MPA. Upgrade returns when the queue
// pair v is connected. The stream is unusable afterwards, also after an error other than ErrBusy. private is the
// private data of the MPA Request. mpa is the configuration of MPA; nil means that of the device. Upgrade fails with
// the errors of Dial and ErrBusy.
func (d *Device) Upgrade(ctx context.Context, s *Stream, v verbs.QP, private []byte,
	mpa *verbs.MPAConfig) error {
	return d.x.base.Initiate(ctx, s.remote, v, private, mpa, d.x.upgrade(s))
}

// AwaitRequest is the responder's counterpart of Upgrade: it returns the MPA Request that the peer sends on the stream.
// mpa is the configuration of MPA; nil means that of the device. It fails with the error that ended the connection,
// ErrBusy, and the context's cause.
func (d *Device) AwaitRequest(ctx context.Context, s *Stream,
	mpa *verbs.MPAConfig) (*verbs.ConnRequest, error) {
	return d.x.base.Respond(ctx, s.local, s.remote, mpa, d.x.upgrade(s))
}

// upgrade returns the function that replaces s by an iwarp.Conn, as the upper layer of the TCP connection.
func (x *driver) upgrade(s *Stream) func(*core.Conn) error {
	return func(c *core.Conn) error {
		if x.base.IsClosed() {
			return verbs.ErrClosed
		}
		c.Local = s.local
		return s.w.Do(func() error { return x.replace(s, c, core.Now()) })
	}
}

func (x *driver) replace(s *Stream, c *core.Conn, now tick.Time) error {
	e := s.bytes.Endpoint()
	if e == nil {
		return verbs.ErrNotReady
	}
	if e.Conn().Info(now).HeldBytes > 0 {
		return ErrBusy
	}
	o, err := x.newUpper(s.w, c)
	if err != nil {
		return err
	}
	c.Port = s.port.Swap(nil)
	snd, rcv, unread := s.bytes.HandOver()
	o.StartAfter(s.bytes, e, snd, rcv, unread, now)
	e.SetTOS(c.TOS())
	return nil
}

var _ overtcp.Prior = (*bytestream.Stream)(nil)
