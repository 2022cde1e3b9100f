// Package control implements the protocol between the daemon and the programs on its host: messages on a Unix socket,
// and rings in shared memory. It must match PROTOCOL.md.
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

// Kind is the kind of a frame's content.
type Kind uint8

// The kinds.
const (
	KindRequest Kind = 1 // client to daemon
	KindReply   Kind = 2 // daemon to client, one for each request
	KindEvent   Kind = 3 // daemon to client, unsolicited
)

// headerLen is the length of the header of a frame:
//
//	 0      3   4      5       6  7
//	+--------+------+-------+-------+
//	| length | kind | files |   0   |   little endian; length is the body's
//	+--------+------+-------+-------+
const headerLen = 8

// ErrConnClosed is the error of a connection closed by this side.
var ErrConnClosed = errors.New("control connection closed locally")

// ErrFrame says that the other side violated the protocol. An invalid frame ends the connection. An invalid request may
// instead get a reply with CodeInvalid: that error also matches ErrFrame, but the connection stays.
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
		return h, fmt.Errorf("%w: body of %d bytes, at most %d", ErrFrame, n, limit)
	case h.kind < KindRequest || h.kind > KindEvent:
		return h, fmt.Errorf("%w: kind %d", ErrFrame, b[4])
	case h.files > MaxFiles:
		return h, fmt.Errorf("%w: %d descriptors, at most %d", ErrFrame, h.files,
			MaxFiles)
	case b[6] != 0 || b[7] != 0:
		return h, fmt.Errorf("%w: reserved header bytes are not zero", ErrFrame)
	}
	h.length = int(n)
	return h, nil
}

// Socket sends and receives frames. One goroutine may receive; any goroutine may send.
type Socket struct {
	sock  *net.UnixConn
	limit int        // maximum length of a received body
	mu    sync.Mutex // held while a frame is sent

	life   sync.RWMutex // locked for writing by Close, and for reading by all other methods except Receive
	closed bool
}

// NewSocket returns a Socket on a connected stream socket. limit is the maximum length of a received body.
func NewSocket(c *net.UnixConn, limit int) *Socket { return &Socket{sock: c, limit: limit} }

// Shutdown ends the connection: Receive and Send return soon. It does not block and does not close the socket.
func (c *Socket) Shutdown() {
	c.life.RLock()
	defer c.life.RUnlock()
	if !c.closed {
		c.sock.CloseRead()
		c.sock.CloseWrite()
	}
}

// Close closes the socket. The kernel then closes the descriptors that were sent to it but not received, and the other
// side can make that block as long as it wants (SO_LINGER, FUSE). Unless the other side is trusted, only the goroutine
// that calls Receive may call Close.
func (c *Socket) Close() error {
	c.Shutdown()
	c.life.Lock()
	again := c.closed
	c.closed = true
	c.life.Unlock()
	if again {
		return nil
	}
	return c.sock.Close()
}

// Send writes one frame. The caller still owns the descriptors.
func (c *Socket) Send(k Kind, body []byte, files ...int) error {
	return c.SendParts(k, [][]byte{body}, files...)
}

// shortBody is the maximum length of a body sent with its header in one system call.
const shortBody = 16 << 10

// SendParts is Send with a body in parts. Long parts are not copied, because many replies may wait for a slow reader.
func (c *Socket) SendParts(k Kind, parts [][]byte, files ...int) error {
	h := header{kind: k, files: len(files)}
	for _, p := range parts {
		h.length += len(p)
	}
	c.life.RLock()
	defer c.life.RUnlock()
	if c.closed {
		return ErrConnClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := make([]byte, headerLen, headerLen+min(h.length, shortBody))
	h.put(first)
	if h.length <= shortBody {
		for _, p := range parts {
			first = append(first, p...)
		}
		parts = nil
	}
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	c.sock.SetWriteDeadline(time.Now().Add(WriteTimeout))
	n, _, err := c.sock.WriteMsgUnix(first, oob, nil)
	if err == nil && n < len(first) {
		_, err = c.sock.Write(first[n:])
	}
	for _, p := range parts {
		if err == nil {
			_, err = c.sock.Write(p)
		}
	}
	return err
}

// Receive reads one frame. The caller owns the descriptors, including those received before an error. io.EOF says that
// the other side closed the connection between two frames.
func (c *Socket) Receive() (k Kind, body []byte, files []int, err error) {
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
		return 0, nil, files, fmt.Errorf("%w: %d descriptors announced, %d received", ErrFrame,
			h.files, len(files))
	}
	return h.kind, body, files, nil
}

// read fills b and appends descriptors that come with it.
func (c *Socket) read(b []byte, files *[]int) error {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	for got := 0; got < len(b); {
		n, on, flags, _, err := c.sock.ReadMsgUnix(b[got:], oob)
		*files = append(*files, rights(oob[:on])...)
		switch {
		case errors.Is(err, net.ErrClosed):
			return ErrConnClosed
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
