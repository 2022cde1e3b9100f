package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"xwarp/cmd/program"
)

// quitKey returns a context that is cancelled when the user presses q or Q, or when the terminal cannot be read. It
// sets the terminal to read single keys without echo; restore resets it. Ctrl-C still sends a signal. If in is not a
// terminal, quitKey does nothing.
func quitKey(ctx context.Context, in io.Reader) (_ context.Context, restore func(), err error) {
	if !program.IsTerminal(in) {
		return ctx, func() {}, nil
	}
	fd := int(in.(*os.File).Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, nil, err
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, nil, err
	}
	ctx, quit := context.WithCancel(ctx)
	go func() {
		for key := make([]byte, 1); ; {
			n, err := in.Read(key)
			if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q') {
				quit()
				return
			}
		}
	}()
	return ctx, func() { quit(); unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil
}
