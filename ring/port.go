package ring

import "time"

// Port is what a Socket and its decorators have in common: all that a worker needs. The methods are
// documented at Socket. Packets and transmit buffers must go back to the Port that they came from.
type Port interface {
	Recv(batch []Packet) int
	Hold(p *Packet)
	Release(p *Packet)
	Refill() int
	AllocTx() (TxBuf, bool)
	Send(b TxBuf, n int)
	CancelTx(b TxBuf)
	Flush() State
	Reap() int
	Wait(timeout time.Duration, extraFD int) Ready
	Stats() Stats
	Info() Info
	Audit() error
	Close() error
}

var _ Port = (*Socket)(nil)
