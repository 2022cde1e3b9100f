package xdp

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"xwarp/engine/bytestream"
	"xwarp/engine/fair"
	"xwarp/engine/host/ports"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// Ready is a set of conditions of a Stream, as poll(2) has them.
type Ready = bytestream.Ready

// The conditions.
const (
	Readable  = bytestream.Readable  // octets, the end of the stream or an error wait
	Writable  = bytestream.Writable  // Write takes octets, or gives an error
	Connected = bytestream.Connected // the handshake is done
	Ended     = bytestream.Ended     // the connection is gone, or MPA's
)

// Stream is a plain TCP byte stream on the engine's own TCP. No method waits for the peer; see NetConn for one whose
// methods do. All may be called from any goroutine.
type Stream struct{ *socket }

// socket is what Stream and NetConn have in common.
type socket struct {
	bytes         *bytestream.Stream
	w             *worker
	doorbell      core.Doorbell
	port          atomic.Pointer[ports.Reservation] // of an active open
	local, remote netip.AddrPort
}

func newStream(w *worker, cfg bytestream.Config, local, remote netip.AddrPort) *Stream {
	s := &socket{w: w, local: local, remote: remote}
	s.bytes = bytestream.New(cfg, func(*bytestream.Stream) { w.Ring(&s.doorbell) })
	s.doorbell.Owner = streamDoorbell{s}
	return &Stream{s}
}

// Read moves octets that arrived in order into p. It returns io.EOF after the peer's FIN, EAGAIN when nothing waits,
// net.ErrClosed after Close, and what ended the connection, once everything before that was read, as Err does.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.bytes.Read(p)
	return n, withNumber(err)
}

// Write queues octets of p and returns how many there was room for. It fails with EAGAIN when there was none, EPIPE
// after Shutdown, net.ErrClosed after Close, and with what ended the connection, as Err does.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.bytes.Write(p)
	return n, withNumber(err)
}

// Poll returns the conditions that hold.
func (s *Stream) Poll() Ready { return s.bytes.Poll() }

// Changed receives a value when conditions may have changed since the last one was taken.
func (s *Stream) Changed() <-chan struct{} { return s.bytes.Changed() }

// LocalAddr is our end of the connection.
func (s *Stream) LocalAddr() netip.AddrPort { return s.local }

// RemoteAddr is the peer's end.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.remote }

// withNumber adds the number of package syscall to what ended a connection.
func withNumber(err error) error {
	if c, ok := err.(tcp.Cause); ok {
		return verbs.Wrap("", c)
	}
	return err
}

// Err returns what ended the connection, as ECONNREFUSED, ECONNRESET, ECONNABORTED after Abort, ETIMEDOUT or
// EHOSTUNREACH; nil while it lives and after a close by both sides.
func (s *socket) Err() error { return withNumber(s.bytes.Err()) }

// Shutdown sends FIN after what was written; with read, what still arrives is thrown away.
func (s *socket) Shutdown(write, read bool) { s.bytes.Shutdown(write, read) }

// Unsent returns the octets written and not acknowledged (SIOCOUTQ).
func (s *socket) Unsent() int { return s.bytes.Unsent() }

// Unread returns the octets that Read would give (SIOCINQ).
func (s *socket) Unread() int { return s.bytes.Unread() }

// streamDoorbell is the owner of a stream's doorbell.
type streamDoorbell struct{ *socket }

func (s streamDoorbell) Kick(*core.Shard) int { s.bytes.Kick(); return 1 }

func (streamDoorbell) DoorbellClass(l *core.Shard) *fair.Class[*core.Doorbell] {
	return &l.Common.Doorbells
}

// EndAfterPanic implements panicTarget.
func (s streamDoorbell) EndAfterPanic(why error) {
	if e := s.bytes.Endpoint(); e != nil {
		s.w.stk.Abandon(e, why, core.Now())
	}
}

// onConn runs f with the connection on the worker, if the stream still has it. It fails with ErrClosed when the
// device is closed.
func (s *socket) onConn(f func(c *tcp.Conn, now tick.Time)) error {
	return s.w.CallFor(streamDoorbell{s}, func() {
		if e := s.bytes.Endpoint(); e != nil {
			f(e.Conn(), core.Now())
			e.Wake()
		}
	})
}

// Abort ends the connection with RST. It fails with net.ErrClosed when the device is closed, as the methods below do.
func (s *socket) Abort() error {
	return s.onConn(func(c *tcp.Conn, now tick.Time) { c.Abort(now) })
}

// Close sends what was written and FIN, and refuses what still arrives; the connection goes on without its
// owner until the peer closed too. With linger set, it is reset when that takes longer; with octets that
// nobody read it is reset at once. A connection that MPA has taken over stays. It fails with net.ErrClosed when s is
// closed.
func (s *socket) Close() error {
	if !s.bytes.Close() {
		return verbs.ErrClosed
	}
	err := s.onConn(func(_ *tcp.Conn, now tick.Time) { s.bytes.Release(now) })
	return errors.Join(err, s.port.Swap(nil).Close())
}

// Info returns the state and the counters of the connection: Linux's TCP_INFO.
func (s *socket) Info() (i verbs.TCPInfo, err error) {
	err = s.onConn(func(c *tcp.Conn, now tick.Time) {
		i = verbs.TCPInfo{Info: c.Info(now), Counters: c.Counters()}
	})
	return i, err
}

// SetKeepalive sets SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT; an idle of 0 is off.
func (s *socket) SetKeepalive(idle, interval time.Duration, probes int) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetKeepalive(idle, interval, probes) })
}

// SetUserTimeout sets TCP_USER_TIMEOUT; negative is never.
func (s *socket) SetUserTimeout(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetUserTimeout(d) })
}

// SetDelayedAck sets the longest that an acknowledgement waits; negative acknowledges at once (TCP_QUICKACK).
func (s *socket) SetDelayedAck(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetDelayedAck(d) })
}

// SetLinger sets SO_LINGER: the longest from Close to the acknowledgement of everything, then RST.
func (s *socket) SetLinger(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetLinger(d) })
}
