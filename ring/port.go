package ring

import "time"

// Port is the interface of a Socket and its decorators: all methods that a worker needs. The methods are
// documented at Socket. Packets and transmit buffers must go back to the Port that they came from.
//
// A decorator that looks at what is sent looks at blocks, too: those of package ring/gso, where Info.Blocks is true.
type Port interface {
	Recv(batch []Packet) int
	Release(p *Packet)
	Refill() int
	AllocTx() (TxBuf, bool)
	Send(b TxBuf, n int)
	CancelTx(b TxBuf)
	// Block returns the memory of the next block, which the writer has until SendBlock; nothing needs to be given
	// back. nil: only frames can be sent now.
	Block() []byte
	// SendBlock sends the beginning b of what Block returned, after every frame that was sent before.
	SendBlock(b []byte, s Shape)
	Flush() State
	Reap() int
	Wait(timeout time.Duration, extraFD int) Ready
	Stats() Stats
	// Live returns the counters of live frames, nil of a Port that sends none: see package live.
	Live() *LiveStats
	Info() Info
	Audit() error
	Close() error
}

var _ Port = (*Socket)(nil)

// Shape says how a block is cut into segments: a block is TCP segments of one connection that follow each other, as one
// frame with one set of headers.
type Shape struct {
	IPAt    int // bytes before the IP header
	Headers int // bytes of all headers
	Payload int // bytes of TCP payload in each segment but the last, which may be shorter
	IPv6    bool
}

// LiveStats counts what became of frames on a Port with live frames.
type LiveStats struct {
	Runs    uint64 // calls that transmitted frames
	Frames  uint64 // by those
	Single  uint64 // frames that left through the Port below
	Invalid uint64 // frames of impossible length, which were dropped
	Failed  uint64 // calls that transmitted nothing; the Port below took their frames
}

// Live returns nil: a socket sends none.
func (s *Socket) Live() *LiveStats { return nil }

// Block returns nil: a socket takes frames only.
func (s *Socket) Block() []byte { return nil }

// SendBlock does nothing, for there is no block.
func (s *Socket) SendBlock([]byte, Shape) {}
