package endpoint

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

func (e *plainSockets) runServer(ctx context.Context, client Ready, stop <-chan struct{}) (*Result,
	error) {
	go OnProcessor(e.place.CPU, func() error {
		for e.open.Load() {
			fd, _, err := unix.Accept4(e.l, unix.SOCK_CLOEXEC)
			if err != nil {
				return err
			}
			e.options(fd)
			e.answer(fd)
			unix.Close(fd)
		}
		return nil
	})
	return e.closeOnStop(ctx, stop)
}

// closeOnStop waits until stop is closed and then ends the server's accept. Its result is empty: only the client
// measures.
func (e *plainSockets) closeOnStop(ctx context.Context, stop <-chan struct{}) (*Result, error) {
	select {
	case <-stop:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	unix.Shutdown(e.l, unix.SHUT_RDWR) // ends accept
	return &Result{Seconds: 1}, nil
}

// answer is the server's part on one connection.
func (e *plainSockets) answer(fd int) {
	switch e.spec.Mode {
	case Bandwidth:
		b := make([]byte, bulkRead)
		for {
			n, err := unix.Read(fd, b)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				break
			}
		}
		writeAll(fd, b[:1])
	case Latency:
		b := make([]byte, e.spec.Size)
		for readAll(fd, b, !e.spec.Sleep) == nil && writeAll(fd, b) == nil {
		}
	case Connect:
		var b [startupBytes]byte
		if readAll(fd, b[:], false) == nil {
			writeAll(fd, b[:])
		}
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(0, n):]
	}
	return nil
}

var errClosed = errors.New("the peer closed the connection")

// readAll reads until b is full. With spin it polls the socket, so that the thread never sleeps in the kernel.
func readAll(fd int, b []byte, spin bool) error {
	flags := 0
	if spin {
		flags = unix.MSG_DONTWAIT
	}
	for len(b) > 0 {
		n, _, err := unix.Recvfrom(fd, b, flags)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return err
		case n == 0:
			return errClosed
		}
		b = b[n:]
	}
	return nil
}
