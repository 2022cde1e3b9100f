package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ports"
)

// plainSockets is an end over kernel TCP. One thread makes the system calls itself, without the poller of the Go
// runtime.
type plainSockets struct {
	spec  *Spec
	place *Place
	l     int
	open  atomic.Bool
}

// bulkRead is the number of bytes that the server reads at a time, as iperf3 does.
const bulkRead = 128 << 10

// startupBytes is the number of bytes that each side sends in an MPA start-up: a frame of 20 bytes and the 4 bytes of
// enhanced data of RFC 6581.
const startupBytes = 24

func (e *plainSockets) prepare(server bool) (r Ready, err error) {
	switch {
	case e.spec.Verb != Write || e.spec.Bidirectional:
		return r, fmt.Errorf("%w: plain sockets carry a stream in one direction", ErrSpec)
	case e.spec.Conns > 1 && (e.spec.Mode != Bandwidth || e.spec.Iterations > 0):
		return r, fmt.Errorf("%w: many plain sockets allow bandwidth over a duration only",
			ErrSpec)
	}
	if !server {
		return r, nil
	}
	family, at := ports.Sockaddr(netip.AddrPortFrom(e.place.Local, e.place.Port))
	e.l, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	e.open.Store(true)
	unix.SetsockoptInt(e.l, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = unix.Bind(e.l, at); err == nil {
		err = unix.Listen(e.l, 1024)
	}
	if err != nil {
		return r, fmt.Errorf("listening at %v: %w", e.place.Local, err)
	}
	name, err := unix.Getsockname(e.l)
	if err != nil {
		return r, err
	}
	r.Addr = netip.AddrPortFrom(e.place.Local, ports.Of(name))
	return r, nil
}

func (e *plainSockets) close() {
	if e.open.Swap(false) {
		unix.Close(e.l)
	}
}

func (e *plainSockets) dial(to netip.AddrPort) (int, error) {
	family, at := ports.Sockaddr(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	e.options(fd)
	if err := unix.Connect(fd, at); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %v: %w", to, err)
	}
	return fd, nil
}

// options sets the socket options of the spec.
func (e *plainSockets) options(fd int) {
	e.spec.setCongestion(uintptr(fd))
	if e.spec.NoDelay || e.spec.Mode == Latency {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
}

// setCongestion sets the congestion control of a socket. If the kernel lacks it, the socket keeps the host's default.
func (s *Spec) setCongestion(fd uintptr) {
	if s.Congestion != "" {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, s.Congestion)
	}
}

func (e *plainSockets) runClient(ctx context.Context, server Ready) (r *Result, err error) {
	err = OnProcessor(e.place.CPU, func() (err error) {
		if e.spec.Mode == Connect {
			r, err = e.spec.connections(ctx, func() error { return e.dialOne(server.Addr) })
			return err
		}
		fd, err := e.dial(server.Addr)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		stop := context.AfterFunc(ctx, func() { unix.Shutdown(fd, unix.SHUT_RDWR) })
		defer stop()
		if e.spec.Mode == Latency {
			r, err = e.ping(fd)
		} else {
			r, err = e.stream(fd)
		}
		return err
	})
	return r, err
}

// stream writes messages until the window is over, and waits until the server has everything.
func (e *plainSockets) stream(fd int) (*Result, error) {
	b := make([]byte, e.spec.Size)
	for i := range b {
		b[i] = byte(i >> 3)
	}
	held, endHeld := e.watchPeerHeld(fd)
	defer endHeld()
	w := window{spec: e.spec}
	every := uint64(max(1, 65536/e.spec.Size))
	w.openAt(time.Now())
	var n uint64
	for more := true; more; {
		if err := writeAll(fd, b); err != nil {
			return nil, err
		}
		n++
		if it := uint64(e.spec.Iterations); it > 0 {
			more = n < it
		} else if n%every == 0 {
			more = w.tick(time.Now(), n)
		}
	}
	unix.Shutdown(fd, unix.SHUT_WR)
	if err := readAll(fd, b[:1], false); err != nil {
		return nil, fmt.Errorf("waiting for the server's final message: %w", err)
	}
	w.finish(time.Now(), n)
	r := w.result()
	if i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
		r.Retransmits = uint64(i.Total_retrans)
	}
	r.HeldHigh = int(held.Load())
	return r, nil
}

// heldEach is the interval between two queries by watchPeerHeld.
const heldEach = 500 * time.Microsecond

// watchPeerHeld samples how many bytes the peer of fd holds behind a gap, and keeps the maximum in most. The sender's
// kernel knows them as segments that SACK acknowledged. Without Spec.Sleep it measures nothing, and most stays 0. The
// caller calls end when it is done.
func (e *plainSockets) watchPeerHeld(fd int) (most *atomic.Int64, end func()) {
	most = new(atomic.Int64)
	quit, done := make(chan struct{}), make(chan struct{})
	if !e.spec.Sleep {
		return most, func() {} // a measurement of speed, which the queries would disturb
	}
	go func() {
		defer close(done)
		t := time.NewTicker(heldEach)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
			}
			i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				most.Store(max(most.Load(), int64(i.Sacked)*int64(i.Snd_mss)))
			}
		}
	}()
	return most, func() { close(quit); <-done }
}

func (e *plainSockets) ping(fd int) (*Result, error) {
	b := make([]byte, e.spec.Size)
	r := newRounds(e.spec)
	r.openAt(time.Now())
	for {
		sent := time.Now()
		if err := writeAll(fd, b); err != nil {
			return nil, err
		}
		if err := readAll(fd, b, !e.spec.Sleep); err != nil {
			return nil, err
		}
		if !r.addRound(sent, time.Now()) {
			return r.result(), nil
		}
	}
}

// dialOne makes a connection, exchanges as many bytes as an MPA start-up, and closes it after the server has. The
// server closes first, so that its side enters TIME-WAIT and the client's ports stay free.
func (e *plainSockets) dialOne(to netip.AddrPort) error {
	fd, err := e.dial(to)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var b [startupBytes]byte
	if err := writeAll(fd, b[:]); err != nil {
		return err
	}
	if err := readAll(fd, b[:], false); err != nil {
		return err
	}
	if err := readAll(fd, b[:1], false); !errors.Is(err, errClosed) {
		return fmt.Errorf("waiting for the server's FIN: %w", err)
	}
	return nil
}
