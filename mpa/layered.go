package mpa

import (
	"errors"
	"io"

	"xwarp/mpa/ulp"
	"xwarp/tcp/seq"
)

// Locker is what keeps a queue pair to one of the goroutines that drive the two directions of a layered transport.
type Locker interface {
	Lock()
	Unlock()
}

// LayeredReceiver runs a Receiver over a transport that delivers every octet in order and once, such as a socket (RFC 5044,
// 5.2). One goroutine reads; Buffer and Received are called under the lock of the
// queue pair, the read between them is not.
type LayeredReceiver struct {
	Receiver
	buf  []byte
	used int // octets of buf that the Receiver has not taken
	at   seq.Num
	one  [1][]byte
}

// InitLayered makes l ready with a buffer of size octets, which should hold several of the largest FPDUs expected.
func (l *LayeredReceiver) InitLayered(cfg ReceiverConfig, size int, sink Sink) {
	if len(l.buf) != size {
		l.buf = make([]byte, max(1, size))
	}
	cfg.Layered = true
	l.used, l.at = 0, 0
	l.Init(cfg, 0, sink)
}

// Buffer returns the room to read into; it is never empty.
func (l *LayeredReceiver) Buffer() []byte { return l.buf[l.used:] }

// Received takes the first n octets of Buffer: FPDUs are placed and delivered at once, and the rest is held.
func (l *LayeredReceiver) Received(n int) *ulp.Error {
	b := l.buf[:l.used+n]
	for len(b) > 0 {
		l.one[0] = b
		kept, err := l.Offer(l.at, l.one[:], len(b))
		if err != nil {
			return err
		}
		l.at = l.at.Add(kept)
		if b = b[kept:]; kept == 0 {
			break // the pool is full; the octets wait here
		}
	}
	if l.used = copy(l.buf, b); l.used == len(l.buf) {
		return ulp.Newf(ulp.MPA, 0, CodeLocal, "no memory to hold received octets")
	}
	return nil
}

// ReadOnce reads once from r and takes what came; mu is held outside the read. The error is that of r, or an *ulp.Error.
func (l *LayeredReceiver) ReadOnce(r io.Reader, mu Locker) error {
	mu.Lock()
	b := l.Buffer()
	mu.Unlock()
	n, err := r.Read(b)
	if n > 0 {
		mu.Lock()
		e := l.Received(n)
		mu.Unlock()
		if e != nil {
			return e
		}
	}
	if errors.Is(err, io.EOF) {
		mu.Lock()
		defer mu.Unlock()
		if e := l.Closed(l.at.Add(l.used)); e != nil {
			return e
		}
	}
	return err
}

// LayeredSender runs a Sender over a transport that takes octets in order, such as a socket (RFC 5044, 5.1). One
// goroutine writes; Fetch and Written are called under the lock of the queue pair, the write between them is not.
type LayeredSender struct {
	Sender
	buf []byte
	at  seq.Num // behind what was fetched
}

// InitLayered makes l ready to send FPDUs of at most emss octets, many of them per write of at most size octets.
// cfg.Pack applies to a write.
func (l *LayeredSender) InitLayered(cfg SenderConfig, emss, size int, src Source) {
	size = max(size, emss, MaxFPDU)
	if len(l.buf) != size {
		l.buf = make([]byte, size)
	}
	l.at = 0
	l.Init(cfg, 0, emss, src)
}

// Fetch returns the next octets to write, as many whole FPDUs as are there and fit; nil means that there is nothing to
// send. They stay valid until Written.
func (l *LayeredSender) Fetch() []byte {
	n := 0
	room := max(l.emss, l.cfg.worst(MinMULPDU))
	for n+room <= len(l.buf) {
		k, _ := l.Next(room)
		if k == 0 || !l.Fill(seq.Of(l.at, k), l.buf[n:n+k]) {
			break
		}
		l.at = l.at.Add(k)
		if n += k; !l.cfg.Pack {
			break
		}
	}
	if n == 0 {
		return nil
	}
	return l.buf[:n]
}

// Written says that the transport has taken the octets of Fetch, which completes their work requests.
func (l *LayeredSender) Written() { l.Acked(l.at) }

// WriteOnce writes once what there is to send; mu is held outside the write. It returns false when there was nothing.
func (l *LayeredSender) WriteOnce(w io.Writer, mu Locker) (bool, error) {
	mu.Lock()
	b := l.Fetch()
	mu.Unlock()
	if b == nil {
		return false, nil
	}
	if _, err := w.Write(b); err != nil {
		return true, err
	}
	mu.Lock()
	l.Written()
	mu.Unlock()
	return true, nil
}
