package gso

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// vnetHeader is the length of struct virtio_net_hdr, which precedes a frame.
const vnetHeader = 10

// sendBuffer is the maximum number of bytes of blocks in flight, including the kernel's overhead.
const sendBuffer = 8 << 20

// Sender is a packet socket that accepts blocks. It belongs to one thread.
type Sender struct{ fd int }

// OpenSender creates a Sender for an interface of the calling thread's network namespace. It needs CAP_NET_RAW and
// CAP_NET_ADMIN.
func OpenSender(ifindex int) (*Sender, error) {
	fd, err := NewSocket()
	if err != nil {
		return nil, err
	}
	return UseSocket(fd, ifindex)
}

// NewSocket creates an unbound packet socket. It needs CAP_NET_RAW.
func NewSocket() (fd int, err error) {
	// Protocol 0: the socket receives nothing.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("gso: packet socket: %w%s", err,
			ring.SocketHint(err, "CONFIG_PACKET"))
	}
	return fd, nil
}

// UseSocket is OpenSender with fd, a socket from NewSocket. The Sender owns fd. After an error fd is closed.
func UseSocket(fd, ifindex int) (*Sender, error) {
	s := &Sender{fd}
	if err := s.setUp(ifindex); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("gso: %w", err)
	}
	return s, nil
}

func (s *Sender) setUp(ifindex int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fmt.Errorf("PACKET_VNET_HDR: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
		sendBuffer); err != nil {
		return fmt.Errorf("SO_SNDBUFFORCE: %w (it needs CAP_NET_ADMIN)", err)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: ifindex}); err != nil {
		return fmt.Errorf("bind to interface %d: %w", ifindex, err)
	}
	return nil
}

// Block is the memory of one block: room for a struct virtio_net_hdr, then the frame.
type Block struct{ mem []byte }

// NewBlock returns a Block for frames of n bytes.
func NewBlock(n int) Block { return Block{make([]byte, vnetHeader+n)} }

// Frame returns the memory of the frame.
func (b Block) Frame() []byte { return b.mem[vnetHeader:] }

// Send passes the first n bytes of b's frame to the kernel. They must hold more than one segment. Send sets the lengths
// in the IP header and the checksums. EAGAIN means that nothing was sent because the queue is full. ENOBUFS means that
// at least one segment was dropped.
func (s *Sender) Send(b Block, n int, c *Shape) unix.Errno {
	c.describe(b.mem[:vnetHeader], b.Frame()[:n])
	whole := b.mem[:vnetHeader+n]
	// A system call that bypasses the Go scheduler, as Socket.Flush in package ring.
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&whole[0])),
		uintptr(len(whole)), unix.MSG_DONTWAIT, 0, 0)
	return e
}

// describe completes the headers of a frame and writes its struct virtio_net_hdr, in the machine's byte order.
func (s *Shape) describe(v, frame []byte) {
	h, at := frame[s.IPAt:], s.tcpAt()
	segment := len(frame) - at
	kind := byte(unix.VIRTIO_NET_HDR_GSO_TCPV4)
	if s.IPv6 {
		kind = unix.VIRTIO_NET_HDR_GSO_TCPV6
		binary.BigEndian.PutUint16(h[4:], uint16(segment))
	} else {
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[10:], 0)
		binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ip.Len4], 0)))
	}
	wire.PutChecksum(frame[at:], wire.Fold(s.pseudoSum(h, segment)))
	o := binary.NativeEndian
	v[0], v[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, kind
	o.PutUint16(v[2:], uint16(s.Headers))
	o.PutUint16(v[4:], uint16(s.Payload))
	o.PutUint16(v[6:], uint16(at))
	o.PutUint16(v[8:], wire.ChecksumAt)
}

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }
