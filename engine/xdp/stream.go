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

// Ready is a set of conditions of a Stream, as in poll(2).
type Ready = bytestream.Ready

// The conditions.
const (
	Readable  = bytestream.Readable  // Read returns bytes, the end of the stream or an error
	Writable  = bytestream.Writable  // Write accepts bytes or returns an error
	Connected = bytestream.Connected // the handshake is done
	Ended     = bytestream.Ended     // the connection has ended, or MPA has taken it over
)

// Stream is a plain TCP byte stream on the engine's own TCP. Its methods never wait for the peer; those of NetConn do.
// Any goroutine may call them.
type Stream struct{ *socket }

// socket is the common part of Stream and NetConn.
type socket struct {
	bytes         *bytestream.Stream
	w             *worker
	doorbell      core.Doorbell
	port          atomic.Pointer[ports.Reservation] // reserved port of an active open; nil otherwise
	local, remote netip.AddrPort
}

func newStream(w *worker, cfg bytestream.Config, local, remote netip.AddrPort) *Stream {
	s := &socket{w: w, local: local, remote: remote}
	s.bytes = bytestream.New(cfg, func(*bytestream.Stream) { w.Ring(&s.doorbell) })
	s.doorbell.Target = streamDoorbell{s}
	return &Stream{s}
}

// Read moves in-order bytes into p. After Close it fails with net.ErrClosed. If there are no bytes, it fails with the
// error of Err if there is one, with io.EOF after the peer's FIN or Shutdown for reading, and otherwise with EAGAIN.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.bytes.Read(p)
	return n, withNumber(err)
}

// Write queues as many bytes of p as there is room for, and returns their number. It fails with EAGAIN if there is no
// room or the handshake is not done, with EPIPE after Shutdown for writing, with net.ErrClosed after Close, and with
// the error of Err.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.bytes.Write(p)
	return n, withNumber(err)
}

// Poll returns the conditions that hold.
func (s *Stream) Poll() Ready { return s.bytes.Poll() }

// Changed returns a channel that receives a value when conditions may have changed since the last value.
func (s *Stream) Changed() <-chan struct{} { return s.bytes.Changed() }

// LocalAddr returns the local address of the connection.
func (s *Stream) LocalAddr() netip.AddrPort { return s.local }

// RemoteAddr returns the remote address of the connection.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.remote }

// withNumber adds a syscall.Errno to err if it is the cause of a connection's end.
func withNumber(err error) error {
	if c := tcp.CauseNone; errors.As(err, &c) {
		return verbs.Wrap("", err)
	}
	return err
}

// Err returns the error that ended the connection: ECONNREFUSED, ECONNRESET, ECONNABORTED after Abort, ETIMEDOUT or
// EHOSTUNREACH. It returns nil before that, and after both sides closed.
func (s *socket) Err() error { return withNumber(s.bytes.Err()) }

// Shutdown closes one or both directions. If write is true, FIN follows the written bytes, and Write fails with EPIPE.
// If read is true, bytes that arrive later are discarded.
func (s *socket) Shutdown(write, read bool) { s.bytes.Shutdown(write, read) }

// Unsent returns the number of bytes written and not acknowledged (SIOCOUTQ).
func (s *socket) Unsent() int { return s.bytes.Unsent() }

// Unread returns the number of bytes that Read can return now (SIOCINQ).
func (s *socket) Unread() int { return s.bytes.Unread() }

// streamDoorbell is the target of a stream's doorbell, for the worker.
type streamDoorbell struct{ *socket }

func (s streamDoorbell) TakePosted(*core.Shard) int { s.bytes.Schedule(); return 1 }

func (streamDoorbell) DoorbellClass(l *core.Shard) *fair.Class[*core.Doorbell] {
	return &l.Common.Doorbells
}

// EndAfterPanic implements core's panicTarget.
func (s streamDoorbell) EndAfterPanic(why error) {
	if e := s.bytes.Endpoint(); e != nil {
		s.w.stk.Abandon(e, why, core.Now())
	}
}

// onConn runs f with the connection on the worker, unless MPA has taken the connection over. It fails with ErrClosed if
// the device is closed.
func (s *socket) onConn(f func(c *tcp.Conn, now tick.Time)) error {
	return s.w.CallFor(streamDoorbell{s}, func() {
		if e := s.bytes.Endpoint(); e != nil {
			f(e.Conn(), core.Now())
			e.Schedule()
		}
	})
}

// Abort resets the connection, unless MPA has taken it over. Like the following methods, it fails with net.ErrClosed if
// the device is closed.
func (s *socket) Abort() error {
	return s.onConn(func(c *tcp.Conn, now tick.Time) { c.Abort(now) })
}

// Close sends the written bytes and FIN, and returns at once. The connection stays until the peer has closed, too. It
// is reset if bytes arrive, if bytes were unread at Close, or after the linger time. A connection that MPA has taken
// over stays. Close fails with net.ErrClosed if s is closed.
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

// SetKeepalive sets SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT. An idle of 0 means off.
func (s *socket) SetKeepalive(idle, interval time.Duration, probes int) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetKeepalive(idle, interval, probes) })
}

// SetUserTimeout sets TCP_USER_TIMEOUT. Negative means never.
func (s *socket) SetUserTimeout(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetUserTimeout(d) })
}

// SetDelayedAck sets the maximum delay of an acknowledgement. Negative means none (TCP_QUICKACK).
func (s *socket) SetDelayedAck(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetDelayedAck(d) })
}

// SetLinger sets SO_LINGER: the maximum time from Close to the acknowledgement of all bytes, after which the connection
// is reset.
func (s *socket) SetLinger(d time.Duration) error {
	return s.onConn(func(c *tcp.Conn, _ tick.Time) { c.SetLinger(d) })
}
