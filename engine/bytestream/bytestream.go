// Package bytestream is a plain TCP byte stream on the engine's own TCP, the counterpart of a kernel socket. The
// stack's thread and one consumer share each Stream under a lock.
package bytestream

import (
	"cmp"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"xwarp/engine/bytestream/stream"
	"xwarp/engine/stack"
	"xwarp/engine/wake"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// ErrAgain is returned if a call would block.
var ErrAgain error = syscall.EAGAIN

// ErrShutdown is returned by Write after Shutdown for writing, after HandOver, and after both sides closed the
// connection.
var ErrShutdown error = syscall.EPIPE

// Ready is a set of conditions, like those of poll(2).
type Ready uint8

// The conditions.
const (
	Readable  Ready = 1 << iota // Read returns bytes, io.EOF or an error
	Writable                    // Write accepts bytes or returns an error
	Connected                   // the handshake is done
	Ended                       // the connection has ended
)

// Config sizes the buffers in bytes. Both buffers allocate memory as they fill, up to these limits. The receive window
// starts at FirstWindow and grows if the peer and the path can use more.
type Config struct {
	SendBuffer, RecvBuffer int // 0: DefaultBuffer
	Nagle                  bool
}

// Sizes of buffers in bytes.
const (
	DefaultBuffer = 4 << 20
	FirstWindow   = 256 << 10
	firstBuffer   = 16 << 10
)

// Stream implements stack.Upper. Its consumer's methods may be called from any goroutine: Read, Write, Shutdown, Close,
// Poll, Changed, Err, Unsent and Unread.
type Stream struct {
	mu       sync.Mutex
	cfg      Config
	rx       stream.Recv
	tx       stream.Send
	ep       *stack.Endpoint
	ready    Ready
	eof      bool
	closed   bool // shut down for writing
	discards bool // shut down for reading: received bytes are discarded
	handed   bool // see HandOver
	released bool // Close was called
	window   int  // capacity of rx in bytes
	unread   int  // bytes read by the consumer since Read last called wake, which announces their room to the peer
	err      error
	changed  wake.Flag
	wake     func()
}

// New returns a Stream for Stack.Connect or ListenConfig.Accept. wakeStack must make the stack's thread call
// Schedule soon.
func New(cfg Config, wakeStack func(*Stream)) *Stream {
	cfg.SendBuffer = cmp.Or(cfg.SendBuffer, DefaultBuffer)
	cfg.RecvBuffer = cmp.Or(cfg.RecvBuffer, DefaultBuffer)
	s := &Stream{cfg: cfg, changed: wake.New()}
	s.wake = func() { wakeStack(s) }
	return s
}

// Schedule must be called on the stack's thread after wake: the consumer read, wrote or shut down.
func (s *Stream) Schedule() {
	if s.ep != nil {
		s.ep.Schedule()
	}
}

// Attach implements stack.Upper. It sets ep because a refused connection ends without Start.
func (s *Stream) Attach(e *stack.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ep = e
}

// Endpoint returns the connection below, for the stack's thread only; nil before Connect and after HandOver.
func (s *Stream) Endpoint() *stack.Endpoint { return s.ep }

// set adds conditions and wakes waiting goroutines.
func (s *Stream) set(r Ready) {
	s.ready |= r
	s.changed.Set()
}

// Start implements stack.Upper.
func (s *Stream) Start(e *stack.Endpoint, snd, rcv seq.Num, _ tick.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ep = e
	s.window = min(FirstWindow, s.cfg.RecvBuffer)
	s.rx.Init(rcv, min(firstBuffer, s.window), s.window)
	s.tx.Init(snd, min(firstBuffer, s.cfg.SendBuffer), s.cfg.SendBuffer)
	s.tx.SetEMSS(e.EMSS())
	s.tx.SetNagle(s.cfg.Nagle)
}

// Next implements tcp.Source.
func (s *Stream) Next(room int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tx.Next(room)
}

// Fill implements stack.Upper.
func (s *Stream) Fill(r seq.Range, dst []byte) (sum uint64, summed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.Fill(r, dst)
	return 0, false
}

// Acked implements stack.Upper.
func (s *Stream) Acked(to seq.Num) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.Acked(to)
	if s.tx.Free() > 0 {
		s.set(Writable)
	}
}

// Offer implements stack.Upper. After Shutdown for reading it discards the bytes, and they count as received.
func (s *Stream) Offer(at seq.Num, pieces [][]byte, n int, _ checksum.Known) (kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discards {
		return n
	}
	for _, p := range pieces {
		p = p[:min(len(p), n-kept)]
		k := s.rx.Put(at.Add(kept), p)
		kept += k
		if k < len(p) || kept == n {
			break
		}
	}
	return kept
}

// Advance implements stack.Upper.
func (s *Stream) Advance(to seq.Num) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.discards {
		s.rx.Advance(to)
	}
	if s.rx.Ready() > 0 {
		s.set(Readable)
	}
}

// Space implements stack.Upper. It enlarges the window, up to Config.RecvBuffer, if TCP can use more.
func (s *Stream) Space() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discards {
		return s.window
	}
	if want := s.ep.Conn().WantRcvSpace(); want > s.window && s.window < s.cfg.RecvBuffer {
		s.window = min(want, s.cfg.RecvBuffer)
		s.rx.SetLimit(s.window)
	}
	return s.rx.Space()
}

// Settle implements stack.Upper. It requests the FIN after Shutdown for writing.
func (s *Stream) Settle(now tick.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.ep != nil {
		s.ep.Conn().Shutdown(now)
	}
}

// Event implements stack.Upper. It adds the conditions that the event causes, and wakes waiting goroutines.
func (s *Stream) Event(ev tcp.Events, _ tick.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ev&tcp.Connected != 0 {
		s.set(Connected | Writable)
	}
	if ev&tcp.EMSSChanged != 0 && s.ep != nil {
		s.tx.SetEMSS(s.ep.EMSS())
	}
	if ev&tcp.PeerClosed != 0 {
		s.eof = true
		s.set(Readable)
	}
	if ev&tcp.Ended != 0 {
		s.finish()
	}
}

// Abandon implements stack.Upper. The stream ends with the error of the connection, as after tcp.Ended.
func (s *Stream) Abandon(error) { s.Event(tcp.Ended, 0) }

func (s *Stream) finish() {
	if s.ep != nil && s.err == nil {
		s.err = s.ep.Err()
	}
	s.set(Readable | Writable | Ended)
}

// Read moves bytes received in order to p. When all of them were read, it returns the error that ended the connection,
// io.EOF after the peer's FIN or Shutdown for reading, or else ErrAgain. After Close it returns net.ErrClosed.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	if s.released {
		defer s.mu.Unlock()
		return 0, net.ErrClosed
	}
	n := s.rx.Read(p)
	s.unread += n
	wake := s.unread > 0 && (s.unread >= s.window/4 || s.rx.Ready() == 0)
	if wake {
		s.unread = 0
	}
	err := s.readError(n, len(p))
	if n == 0 && errors.Is(err, ErrAgain) {
		s.ready &^= Readable
	}
	s.mu.Unlock()
	if wake {
		s.wake()
	}
	return n, err
}

func (s *Stream) readError(n, want int) error {
	switch {
	case s.released:
		return net.ErrClosed
	case n > 0 || want == 0:
		return nil
	case s.err != nil:
		return s.err
	case s.eof || s.discards || s.ready&Ended != 0:
		return io.EOF
	}
	return ErrAgain
}

// Write queues as many bytes of p as fit and returns their number. It returns ErrAgain if none fit, and before the
// handshake is done. After the end it returns the error that ended the connection, or ErrShutdown; after Close it
// returns net.ErrClosed.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.queue(p)
	if err == nil {
		s.wake()
	}
	return n, err
}

func (s *Stream) queue(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.released:
		return 0, net.ErrClosed
	case s.err != nil:
		return 0, s.err
	case s.closed || s.handed || s.ready&Ended != 0:
		return 0, ErrShutdown
	case s.ready&Connected == 0:
		return 0, ErrAgain
	}
	n = s.tx.Write(p)
	if s.tx.Free() == 0 {
		s.ready &^= Writable
	}
	if n == 0 && len(p) > 0 {
		err = ErrAgain
	}
	return n, err
}

// Shutdown closes one or both directions. If write is true, FIN follows the written bytes, and Write fails. If read is
// true, bytes that arrive later are discarded.
func (s *Stream) Shutdown(write, read bool) {
	s.mu.Lock()
	if write && !s.closed {
		s.closed = true
		s.tx.Close()
	}
	if read && !s.discards {
		s.discards = true
		s.set(Readable)
	}
	s.mu.Unlock()
	s.wake()
}

// Close ends the consumer's use of s: Read and Write fail with net.ErrClosed, and goroutines that wait for Changed are
// woken. It returns false if s was closed already. Release on the stack's thread completes it.
func (s *Stream) Close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.released
	s.released = true
	s.set(Readable | Writable)
	return !was
}

// Release follows Close, on the stack's thread. It sends the written bytes, then FIN. Bytes that arrive later are
// answered with RST. If received bytes were not read, it resets the connection, so that the peer learns of their loss
// (RFC 9293, 3.6.1; RFC 2525, 2.17).
func (s *Stream) Release(now tick.Time) {
	c := s.ep.Conn()
	if s.Unread() > 0 {
		c.Abort(now)
		return
	}
	s.Shutdown(true, false)
	c.Shutdown(now)
	c.Detach(now)
}

// Poll returns the conditions that hold.
func (s *Stream) Poll() Ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ready &^ (Readable | Writable)
	if s.readError(s.rx.Ready(), 1) != ErrAgain {
		r |= Readable
	}
	if r&Ended != 0 || r&Connected != 0 && (s.tx.Free() > 0 || s.closed) {
		r |= Writable
	}
	return r
}

// Changed returns a channel that receives a value after conditions may have changed.
func (s *Stream) Changed() <-chan struct{} { return s.changed }

// Err returns the error that ended the connection; nil while it is open and after both sides closed it.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Unsent returns the number of bytes written and not acknowledged (SIOCOUTQ).
func (s *Stream) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tx.Buffered()
}

// Unread returns the number of bytes that Read would return (SIOCINQ).
func (s *Stream) Unread() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rx.Ready()
}

// HandOver ends the consumer's use of s so that another stack.Upper can take over the connection. The written bytes
// are sent before those of the other Upper, which begin at snd. unread are the bytes received and not read, from rcv
// on. It is called on the stack's thread.
func (s *Stream) HandOver() (snd, rcv seq.Num, unread []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.SetNagle(false)
	snd, rcv = s.tx.Pending().End, s.rx.Next()
	unread = make([]byte, s.rx.Ready())
	s.rx.Read(unread)
	s.handed, s.ep = true, nil
	s.set(Readable | Writable | Ended)
	return snd, rcv, unread
}
