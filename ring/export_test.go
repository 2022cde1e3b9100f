package ring

import "sync/atomic"

// InFlight returns how many transmit slots the kernel holds.
func (s *Socket) InFlight() int { return int(s.frames.count[OwnerCompletion] / s.cfg.TxSlot) }

// Pending reports whether a Flush has work: queued frames, or frames in the ring that need a kick.
func (s *Socket) Pending() bool {
	return s.qhead != s.qtail || atomic.LoadUint32(s.tx.cons) != s.tx.head
}
