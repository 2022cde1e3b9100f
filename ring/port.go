package ring

import "time"

// Port is the interface of a Socket and its decorators, with all methods that a worker needs. Socket documents those
// without a comment here. Packets and transmit buffers must be returned to the Port that they came from.
//
// A decorator that inspects sent frames must also inspect blocks, if Info.Blocks is true: see package ring/gso.
type Port interface {
	Recv(batch []Packet) int
	Release(p *Packet)
	Refill() int
	AllocTx() (TxBuf, bool)
	Send(b TxBuf, n int)
	CancelTx(b TxBuf)
	// Block returns the memory of the next block. The writer owns it until SendBlock; without SendBlock it need not be
	// returned. Nil means that only frames can be sent now.
	Block() []byte
	// SendBlock sends b, which is the beginning of the memory from Block, after all frames sent before.
	SendBlock(b []byte, s Shape)
	Flush() State
	Reap() int
	Wait(timeout time.Duration, extraFD int) Ready
	Stats() Stats
	Info() Info
	Audit() error
	Close() error
}

var _ Port = (*Socket)(nil)

// Shape says how a block is cut into segments. A block is one frame with one set of headers that holds consecutive TCP
// segments of one connection.
type Shape struct {
	IPAt    int // bytes before the IP header
	Headers int // bytes of the Ethernet, IP and TCP headers
	Payload int // bytes of TCP payload per segment; the last one may be shorter
	IPv6    bool
}

// Block returns nil: a socket accepts frames only.
func (s *Socket) Block() []byte { return nil }

// SendBlock does nothing: Block returns no memory.
func (s *Socket) SendBlock([]byte, Shape) {}
