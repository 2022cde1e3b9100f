package ring

import (
	"golang.org/x/sys/unix"
)

// AllocTx returns a free transmit slot, which the writer owns until Send or CancelTx. If none is free, it calls Reap.
// It returns false if still none is free.
func (s *Socket) AllocTx() (TxBuf, bool) {
	f := &s.frames
	if s.k == nil {
		return TxBuf{}, false
	}
	if len(f.txFree) == 0 {
		if s.Reap(); len(f.txFree) == 0 {
			s.stats.TxExhausted++
			return TxBuf{}, false
		}
	}
	i := f.txFree[len(f.txFree)-1]
	f.txFree = f.txFree[:len(f.txFree)-1]
	if i >= uint32(len(f.tx)) || f.tx[i] != OwnerFree {
		f.moveTx(i, OwnerFree, OwnerTx) // which records the error
	} else {
		f.tx[i] = OwnerTx
		f.count[OwnerFree] -= f.slot
		f.count[OwnerTx] += f.slot
	}
	from, to := s.span(i)
	return TxBuf{Data: s.umem[from:to:to], slot: i}, true
}

// span returns the start and end of slot i in the UMEM.
func (s *Socket) span(i uint32) (from, to uint64) {
	size := uint64(s.info.TxRoom)
	from = s.txBase + uint64(i)*size
	return from, from + size
}

// owns reports whether the writer owns slot, that is between AllocTx and Send or CancelTx. Otherwise it counts a
// misuse.
func (s *Socket) owns(slot uint32) bool {
	f := &s.frames
	if slot >= uint32(len(f.tx)) || f.tx[slot] != OwnerTx || f.open[slot] != 0 {
		f.reportMisuse("transmit slot", slot, f.tx, OwnerTx, OwnerCompletion)
		return false
	}
	return true
}

// Send queues the first n bytes of b as a frame for Flush. The writer no longer owns the slot. A frame of invalid
// length is dropped and counted.
func (s *Socket) Send(b TxBuf, n int) {
	if s.k == nil || !s.owns(b.slot) {
		return
	}
	if n < ethHeader || n > s.info.TxRoom {
		s.stats.TxInvalid++
		s.CancelTx(b)
		return
	}
	s.frames.open[b.slot] = queued
	s.queue[s.qtail&uint32(len(s.queue)-1)] = pending{b.slot, uint32(n)}
	s.qtail++
}

// CancelTx frees a slot from AllocTx without sending it.
func (s *Socket) CancelTx(b TxBuf) {
	if s.k == nil || !s.owns(b.slot) {
		return
	}
	if s.frames.moveTx(b.slot, OwnerTx, OwnerFree) {
		s.frames.txFree = append(s.frames.txFree, b.slot)
	}
}

// Flush passes the queued frames to the kernel and makes it transmit, with at most Config.Kicks system calls. These
// bypass the Go scheduler: otherwise it would take the P from a thread that stays long in a system call. Frames that
// the kernel did not accept stay in the ring; call Flush again later.
func (s *Socket) Flush() State {
	if s.k == nil {
		return StateClosed
	}
	s.submit()
	st := StateOK
	for range s.cfg.Kicks {
		before := s.tx.used()
		if before == 0 || !s.tx.needWakeup() {
			break
		}
		errno := s.k.kickTx()
		st = s.onKick(errno, st)
		left := s.tx.used()
		if s.qhead != s.qtail {
			s.submit()
		} else if left == 0 {
			break
		}
		taken := left != before || s.lateTx && errno == unix.EAGAIN
		if !taken || (errno != 0 && st != StateAgain && st != StateBusy) {
			break
		}
	}
	if st == StateOK || st == StateAgain {
		st = StateOK
		if s.qhead != s.qtail || (s.tx.needWakeup() && s.tx.used() != 0) {
			st = StateAgain
		}
	}
	return st
}

// onKick counts the result of a kick and returns the state after it. StateBusy, which reports a dropped frame, remains
// the state after a later kick that succeeds or ends with EAGAIN.
func (s *Socket) onKick(errno unix.Errno, before State) State {
	s.stats.Kicks++
	st := stateOf(errno)
	switch st {
	case StateOK:
		return before
	case StateAgain:
		s.stats.Again++
		if before == StateBusy {
			return StateBusy
		}
	case StateBusy:
		s.stats.Busy++
	case StateNoBuffers:
		s.stats.NoBuffers++
	case StateDown:
		s.stats.Down++
	case StateGone:
		s.stats.Gone++
	default:
		s.stats.OtherErrors++
		s.stats.LastErrno = errno
	}
	return st
}

// submit moves queued frames to the transmit ring while they fit.
func (s *Socket) submit() {
	if s.qhead == s.qtail {
		return
	}
	f, moved := &s.frames, uint32(0)
	for ; s.qhead != s.qtail; s.qhead++ {
		p := &s.queue[s.qhead&uint32(len(s.queue)-1)]
		need := (p.n-1)>>(f.shift&31) + 1
		if s.tx.room(need) < need {
			break
		}
		s.describe(p)
		if f.tx[p.slot] == OwnerTx {
			f.tx[p.slot] = OwnerCompletion
			moved++
		} else {
			f.moveTx(p.slot, OwnerTx, OwnerCompletion) // which records the error
		}
		f.open[p.slot] = uint8(need)
		s.stats.TxPackets++
		s.stats.TxBytes += uint64(p.n)
	}
	f.count[OwnerTx] -= moved * f.slot
	f.count[OwnerCompletion] += moved * f.slot
	s.tx.publish()
}

// describe writes the descriptors of one frame: one per chunk, all but the last with XDP_PKT_CONTD.
func (s *Socket) describe(p *pending) {
	at, _ := s.span(p.slot)
	n, size := p.n, uint32(1)<<(s.frames.shift&31)
	for ; n > size; n -= size {
		s.tx.put(unix.XDPDesc{Addr: at, Len: size, Options: unix.XDP_PKT_CONTD})
		at += uint64(size)
	}
	s.tx.put(unix.XDPDesc{Addr: at, Len: n})
}

// Reap frees the slots whose transmission is complete and returns their number.
func (s *Socket) Reap() int {
	if s.frames.count[OwnerCompletion] == 0 {
		return 0
	}
	avail := s.comp.avail(uint32(len(s.comp.desc)))
	if avail == 0 {
		return 0
	}
	free := 0
	for range avail {
		addr := *s.comp.next()
		if addr < s.txBase {
			s.frames.reportMisuse("receive chunk", uint32(s.frames.chunkAt(addr)), s.frames.rx,
				OwnerCompletion,
				OwnerFree)
			continue
		}
		i := uint32(s.frames.chunkAt(addr - s.txBase))
		if s.cfg.TxSlot != 1 {
			i /= s.cfg.TxSlot
		}
		if s.frames.completeTx(i) {
			free++
		}
	}
	s.comp.release()
	s.frames.count[OwnerCompletion] -= uint32(free) * s.frames.slot
	s.frames.count[OwnerFree] += uint32(free) * s.frames.slot
	s.stats.TxCompleted += uint64(free)
	return free
}
