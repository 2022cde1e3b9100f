// Package control is the protocol between the daemon and the programs on its host: messages on a Unix socket, and rings in
// shared memory. PROTOCOL.md is its text; what stands there and what stands here must agree.
package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what a frame carries.
type Kind uint8

// The kinds.
const (
	KindRequest Kind = 1 // client to daemon
	KindReply   Kind = 2 // daemon to client, one for each request
	KindEvent   Kind = 3 // daemon to client, unasked
)

// headerLen is the length of the header of a frame:
//
//	 0      3   4      5       6  7
//	+--------+------+-------+-------+
//	| length | kind | files |   0   |   little endian; length is the body's
//	+--------+------+-------+-------+
const headerLen = 8

// ErrFrame is wrapped when the other side does not speak the protocol. The connection is of no use afterwards.
var ErrFrame = errors.New("control protocol violated")

type header struct {
	length int
	kind   Kind
	files  int
}

func (h *header) put(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(h.length))
	b[4], b[5], b[6], b[7] = byte(h.kind), byte(h.files), 0, 0
}

func parseHeader(b []byte, limit int) (h header, err error) {
	n := binary.LittleEndian.Uint32(b)
	h = header{kind: Kind(b[4]), files: int(b[5])}
	switch {
	case n > uint32(limit):
		return h, fmt.Errorf("%w: a body of %d octets, at most %d are taken", ErrFrame, n, limit)
	case h.kind < KindRequest || h.kind > KindEvent:
		return h, fmt.Errorf("%w: kind %d", ErrFrame, b[4])
	case h.files > MaxFiles:
		return h, fmt.Errorf("%w: %d descriptors, at most %d are taken", ErrFrame, h.files, MaxFiles)
	case b[6] != 0 || b[7] != 0:
		return h, fmt.Errorf("%w: reserved octets of the header are not zero", ErrFrame)
	}
	h.length = int(n)
	return h, nil
}

// Conn sends and receives frames. One goroutine receives, any may send.
type Conn struct {
	c     *net.UnixConn
	limit int // longest body received
	mu    sync.Mutex
}

// NewConn returns a Conn over a connected stream socket that takes bodies of at most limit octets.
func NewConn(c *net.UnixConn, limit int) *Conn { return &Conn{c: c, limit: limit} }

// Close ends the connection; Receive returns.
func (c *Conn) Close() error { return c.c.Close() }

// Send writes one frame. The descriptors stay the caller's.
func (c *Conn) Send(k Kind, body []byte, files ...int) error {
	b := make([]byte, headerLen+len(body))
	h := header{length: len(body), kind: k, files: len(files)}
	h.put(b)
	copy(b[headerLen:], body)
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.SetWriteDeadline(time.Now().Add(WriteTimeout))
	n, _, err := c.c.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = c.c.Write(b[n:])
	}
	return err
}

// Receive reads one frame. The descriptors are the caller's. io.EOF says that the other side closed between two frames.
func (c *Conn) Receive() (k Kind, body []byte, files []int, err error) {
	defer func() {
		if err != nil {
			CloseAll(files)
			files = nil
		}
	}()
	var b [headerLen]byte
	if err = c.read(b[:], &files); err != nil {
		return 0, nil, files, err
	}
	h, err := parseHeader(b[:], c.limit)
	if err != nil {
		return 0, nil, files, err
	}
	body = make([]byte, h.length)
	if err = c.read(body, &files); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, files, err
	}
	if len(files) != h.files {
		return 0, nil, files, fmt.Errorf("%w: %d descriptors were announced and %d came", ErrFrame, h.files, len(files))
	}
	return h.kind, body, files, nil
}

// read fills b and appends the descriptors that come with it.
func (c *Conn) read(b []byte, files *[]int) error {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	for got := 0; got < len(b); {
		n, on, flags, _, err := c.c.ReadMsgUnix(b[got:], oob)
		*files = append(*files, rights(oob[:on])...)
		switch {
		case err != nil:
			return err
		case flags&unix.MSG_CTRUNC != 0 || len(*files) > MaxFiles:
			return fmt.Errorf("%w: more than %d descriptors", ErrFrame, MaxFiles)
		case n == 0 && got == 0:
			return io.EOF
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		got += n
	}
	return nil
}

// rights returns the descriptors in control messages.
func rights(oob []byte) (files []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if f, err := unix.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, f...)
		}
	}
	for _, f := range files {
		unix.CloseOnExec(f)
	}
	return files
}

// CloseAll closes descriptors.
func CloseAll(files []int) {
	for _, f := range files {
		unix.Close(f)
	}
}
