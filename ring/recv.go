package ring

import (
	"time"

	"golang.org/x/sys/unix"
)

// Recv fills batch with received packets and returns their number. The reader owns them until Release. A packet whose
// last piece has not arrived waits for a later call. A packet of more than Config.MaxFrags pieces is dropped.
func (s *Socket) Recv(batch []Packet) int {
	avail := s.rx.avail(uint32(len(batch)))
	if avail == 0 && s.k != nil && s.k.poll() {
		s.stats.Polls++
		avail = s.rx.avail(uint32(len(batch)))
	}
	if avail == 0 {
		if s.offer.addQuiet(1) {
			s.refill(s.offer.all)
		}
		return 0
	}
	s.offer.quiet = 0
	got, f, claimed := 0, &s.frames, uint32(0)
	for ; avail > 0 && got < len(batch); avail-- {
		d := s.rx.next()
		p := &batch[got]
		if d.Options&unix.XDP_PKT_CONTD != 0 || s.chain.n != 0 || s.skip {
			if s.addFragment(d) {
				s.finishPacket(p)
				got++
			}
			continue
		}
		i, ok := f.filledFrame(d)
		if !ok {
			s.stats.RxBadDesc++
			continue
		}
		f.rx[i] = OwnerRx
		claimed++
		p.mem, p.n, p.size = s.umem, 1, d.Len
		p.frags[0] = frag{uint32(d.Addr), d.Len}
		s.stats.RxBytes += uint64(d.Len)
		got++
	}
	s.stats.RxPackets += uint64(claimed)
	f.count[OwnerFill] -= claimed
	f.count[OwnerRx] += claimed
	s.rx.release()
	return got
}

// claimFrame makes the reader the owner of d's chunk. It returns false, and counts d as bad, if d is not in a receive
// chunk or the kernel does not own that chunk: drivers deliver some chunks twice, see [Driver.ZeroCopyFault].
func (s *Socket) claimFrame(d *unix.XDPDesc) bool {
	i, ok := s.frames.filledFrame(d)
	if !ok {
		s.stats.RxBadDesc++
		return false
	}
	return s.frames.moveRx(uint32(i), OwnerFill, OwnerRx)
}

// filledFrame returns the number of the receive chunk that d is in. ok is false if there is none, or if the kernel does
// not own it.
func (f *frames) filledFrame(d *unix.XDPDesc) (i uint64, ok bool) {
	i = f.chunkAt(d.Addr)
	return i, i < uint64(len(f.rx)) && f.fits(d.Addr, d.Len) && f.rx[i] == OwnerFill
}

// addFragment adds d, one piece of a packet in several pieces, to s.chain and reports whether the packet is complete.
func (s *Socket) addFragment(d *unix.XDPDesc) bool {
	last := d.Options&unix.XDP_PKT_CONTD == 0
	ok := s.claimFrame(d)
	if s.skip || !ok || s.chain.n >= s.cfg.MaxFrags {
		if ok {
			s.frames.freeRx(uint32(s.frames.chunkAt(d.Addr)))
		}
		if ok && !s.skip {
			s.stats.RxOversize++
		}
		s.dropChain()
		s.skip = !last
		return false
	}
	c := &s.chain
	c.frags[c.n] = frag{uint32(d.Addr), d.Len}
	c.n++
	c.size += d.Len
	return last
}

// finishPacket moves the complete packet from s.chain to p.
func (s *Socket) finishPacket(p *Packet) {
	c := &s.chain
	p.mem, p.n, p.size = s.umem, c.n, c.size
	copy(p.frags[:c.n], c.frags[:c.n])
	s.stats.RxPackets++
	s.stats.RxBytes += uint64(c.size)
	c.n, c.size = 0, 0
}

func (s *Socket) dropChain() {
	for _, f := range s.chain.frags[:s.chain.n] {
		s.frames.freeRx(uint32(s.frames.chunkAt(uint64(f.off))))
	}
	s.chain.n, s.chain.size = 0, 0
}

// Release ends the reader's ownership of p and empties it. The next Refill offers the chunks to the kernel again.
func (s *Socket) Release(p *Packet) {
	if s.k != nil {
		f := &s.frames
		for _, g := range p.frags[:p.n] {
			i := uint32(f.chunkAt(uint64(g.off)))
			if i >= uint32(len(f.rx)) || f.rx[i] != OwnerRx {
				f.freeRx(i) // which records the error
				continue
			}
			f.rx[i] = OwnerFree
			f.count[OwnerRx]--
			f.count[OwnerFree]++
			f.rxFree = append(f.rxFree, i) // never grows: each chunk is in the list at most once
		}
	}
	p.n, p.size = 0, 0
}

// Refill offers free receive chunks to the kernel and returns their number. The type offer decides how many the kernel
// has.
func (s *Socket) Refill() int {
	if len(s.frames.rxFree) == 0 || s.k == nil {
		return 0
	}
	s.offer.adjust(s.fill.used())
	if s.info.ZeroCopy || s.offer.isIdle() {
		return s.refill(s.offer.all)
	}
	return s.refill(s.offer.target)
}

// refill offers free chunks until the kernel has limit of them, or the fill ring is full.
func (s *Socket) refill(limit uint32) int {
	f := &s.frames
	n := min(uint32(len(f.rxFree)), limit-min(f.count[OwnerFill], limit))
	if n > 0 {
		n = min(n, s.fill.room(n))
	}
	if n == 0 {
		s.offer.offered = f.count[OwnerFill]
		return 0
	}
	left := len(f.rxFree) - int(n)
	moved := uint32(0)
	for k := len(f.rxFree) - 1; k >= left; k-- {
		i := f.rxFree[k]
		if f.rx[i] == OwnerFree {
			f.rx[i] = OwnerFill
			moved++
		} else {
			f.moveRx(i, OwnerFree, OwnerFill) // which records the error
		}
		s.fill.put(uint64(i) << (f.shift & 63))
	}
	f.rxFree = f.rxFree[:left]
	f.count[OwnerFree] -= moved
	f.count[OwnerFill] += moved
	s.offer.offered = f.count[OwnerFill]
	s.offer.calm += n
	s.fill.publish()
	if s.fill.needWakeup() {
		s.k.kickRx()
	}
	return int(n)
}

// Wait sleeps until a packet has arrived, the descriptor extraFD (an eventfd; -1: none) is readable, or timeout has
// passed; a negative timeout means forever. It returns at once if packets are available. Completed transmissions do not
// wake it. A signal may end it early, with 0.
func (s *Socket) Wait(timeout time.Duration, extraFD int) Ready {
	if s.k == nil {
		return ReadyError
	}
	if s.rx.avail(1) > 0 {
		return ReadyRx
	}
	if s.k.enableInterrupt(); s.rx.avail(1) > 0 {
		return ReadyRx
	}
	s.countWait()
	if !s.offer.isIdle() && (timeout < 0 || timeout > offerSettle) {
		if r := s.wait(offerSettle, extraFD); r != 0 {
			return r
		}
		s.settleOffer()
		timeout = max(timeout-offerSettle, -1)
	}
	return s.wait(timeout, extraFD)
}

// countWait counts a call of Wait that sleeps. It also adds to the quiet time of the offer, and offers all chunks when
// the socket becomes idle.
func (s *Socket) countWait() {
	s.stats.Waits++
	if s.offer.addQuiet(quietWait) {
		s.refill(s.offer.all)
	}
}

// settleOffer marks the socket as idle and offers all chunks.
func (s *Socket) settleOffer() {
	s.offer.quiet = quietRecvs
	s.refill(s.offer.all)
}

func (s *Socket) wait(timeout time.Duration, extraFD int) Ready {
	r := s.k.wait(timeout, extraFD)
	if s.rx.avail(1) > 0 {
		r |= ReadyRx
	}
	return r
}
