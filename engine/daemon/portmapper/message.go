// Package portmapper is the iWARP port mapper. The connections of hardware RNICs bypass the kernel's TCP, so the port
// of a listener may be remapped. Before it connects, a host asks the peer's port mapper on UDP port 3935 for the real
// port. A Mapper answers for the listeners of one interface, whose ports are never remapped, and asks for its own
// connections. No RFC specifies the protocol; the reference is the daemon iwpmd of rdma-core.
package portmapper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Port is the UDP port of every port mapper.
const Port = 3935

// Type is the type of a message.
type Type uint8

// The types. The answer to the active side's Request is Reject, or Accept, which the active side acknowledges.
const (
	Request Type = iota
	Accept
	Ack
	Reject
)

func (t Type) String() string { return [...]string{"REQ", "ACC", "ACK", "REJ"}[t&3] }

// Lengths of messages in bytes.
const (
	RequestLen = 64
	ReplyLen   = 48
)

// Message is a message of the port mapper:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---+---+-------+---------------+-------------------------------+
//	| 0 | T |  IP   |    PMTime     |    port of Mapped (Request)   |
//	+---+---+-------+---------------+-------------------------------+
//	|       port of Accepting       |       port of Connecting      |
//	+-------------------------------+-------------------------------+
//	|                            Handle                             |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|      address of Connecting, 16 bytes; IPv4 in the first 4    |
//	+---------------------------------------------------------------+
//	|      address of Accepting                                     |
//	+---------------------------------------------------------------+
//	|      address of Mapped (Request only)                         |
//	+---------------------------------------------------------------+
//
// The first two bits are the version, 0; IP is 4 or 6. The bytes after an IPv4 address are ignored.
type Message struct {
	Type       Type
	PMTime     uint8          // copied to the answer
	Handle     uint64         // identifies the request of an active side; copied to the answer
	Accepting  netip.AddrPort // the listener: the program's view in a Request, the real address in an Accept
	Connecting netip.AddrPort // the active side, as its program sees it
	Mapped     netip.AddrPort // the real address of the active side; only in a Request
}

// ErrMessage is wrapped by every error of Parse.
var ErrMessage = errors.New("not a port mapper message")

// Parse decodes a datagram, which is one message.
func Parse(b []byte) (Message, error) {
	if len(b) != ReplyLen && len(b) != RequestLen {
		return Message{}, fmt.Errorf("%w: %d bytes", ErrMessage, len(b))
	}
	m := Message{Type: Type(b[0] >> 4), PMTime: b[1], Handle: binary.BigEndian.Uint64(b[8:])}
	if m.Type > Reject {
		return Message{}, fmt.Errorf("%w: version %d", ErrMessage, b[0]>>6)
	}
	if (m.Type == Request) != (len(b) == RequestLen) {
		return Message{}, fmt.Errorf("%w: %v of %d bytes", ErrMessage, m.Type, len(b))
	}
	six := b[0]&15 == 6
	if !six && b[0]&15 != 4 {
		return Message{}, fmt.Errorf("%w: IP version %d", ErrMessage, b[0]&15)
	}
	m.Accepting = address(b[32:48], b[4:], six)
	m.Connecting = address(b[16:32], b[6:], six)
	if m.Type == Request {
		m.Mapped = address(b[48:64], b[2:], six)
	}
	return m, nil
}

func address(a, port []byte, six bool) netip.AddrPort {
	ip := netip.AddrFrom4([4]byte(a))
	if six {
		ip = netip.AddrFrom16([16]byte(a))
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
}

// Append appends the message to b. Its addresses must be of one family.
func (m *Message) Append(b []byte) []byte {
	version, n := byte(4), ReplyLen
	if m.Accepting.Addr().Is6() {
		version = 6
	}
	if m.Type == Request {
		n = RequestLen
	}
	head := len(b)
	b = append(b, make([]byte, n)...)
	p := b[head:]
	p[0], p[1] = byte(m.Type)<<4|version, m.PMTime
	binary.BigEndian.PutUint64(p[8:], m.Handle)
	put(p[32:], p[4:], m.Accepting)
	put(p[16:], p[6:], m.Connecting)
	if m.Type == Request {
		put(p[48:], p[2:], m.Mapped)
	}
	return b
}

func put(a, port []byte, v netip.AddrPort) {
	copy(a, v.Addr().AsSlice())
	binary.BigEndian.PutUint16(port, v.Port())
}
