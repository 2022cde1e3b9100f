package ring

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Inject makes the device receive a frame: it copies the bytes to chunks of the fill ring. It returns false if the
// frame was dropped. FakeStats counts why, unless k has no socket or the frame is empty.
func (k *FakeKernel) Inject(frame []byte) bool {
	return k.inject(frame, k.chunkData(), false)
}

// InjectSplit is Inject with at most n bytes per chunk, for packets with more pieces than their length requires.
func (k *FakeKernel) InjectSplit(frame []byte, n int) bool {
	return k.inject(frame, min(max(n, 1), k.chunkData()), false)
}

// chunkData returns the maximum number of bytes of a received frame per chunk.
func (k *FakeKernel) chunkData() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.frameSize
}

// inject puts frame in chunks, at most size bytes in each. If more is true, the last descriptor too has XDP_PKT_CONTD:
// the packet continues with the next call.
func (k *FakeKernel) inject(frame []byte, size int, more bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.bound || len(frame) == 0 {
		return false
	}
	need := uint32((len(frame) + size - 1) / size)
	switch {
	case k.state == StateDown || k.state == StateGone:
		k.stats.LinkDown++
		return false
	case need > 1 && !k.mem.segments:
		k.stats.TooLong++
		return false
	case k.fill.avail(need) < need:
		k.stats.NoFill++
		if need > 1 {
			k.stats.NoFillMulti++
		}
		return false
	case k.rx.room(need) < need:
		k.stats.RxFull++
		return false
	}
	var note []byte
	for len(frame) > 0 {
		n := min(len(frame), size)
		addr := *k.fill.next()
		d := unix.XDPDesc{Addr: addr + RxHeadroom, Len: uint32(n)}
		if n < len(frame) || more {
			d.Options = unix.XDP_PKT_CONTD
		}
		switch chunk := addr >> k.mem.shift; {
		case addr&(1<<k.mem.shift-1) != 0:
			k.invalid("fill address %#x is not on a chunk's border", addr)
		case chunk >= uint64(len(k.busy)):
			k.invalid("fill address %#x is outside the UMEM", addr)
		case k.busy[chunk]:
			k.invalid("chunk %d is in the fill ring and being transmitted", chunk)
		default:
			copy(k.mem.umem[d.Addr:], frame[:n])
			if note == nil {
				note = k.mem.umem[addr:][1<<k.mem.shift-noteBytes : 1<<k.mem.shift]
			}
		}
		k.rx.put(d)
		frame = frame[n:]
	}
	if need > 1 && k.zeroCopy && k.cfg.NoTailroom {
		copy(note, bytes.Repeat([]byte{0xdb}, noteBytes))
	}
	k.fill.release()
	k.rx.publish()
	k.stats.Injected++
	return true
}

// accept moves the descriptors of up to budget packets from the transmit ring to k.sent. It returns EAGAIN if the
// transmit ring still has descriptors.
func (k *FakeKernel) accept(budget int) unix.Errno {
	for ; budget > 0; budget-- {
		if k.tx.head == k.tx.tail {
			k.tx.release()
		}
		if k.tx.avail(1) == 0 {
			return 0
		}
		k.acceptOne()
	}
	if !k.cfg.LateTx {
		k.tx.release()
	}
	if k.pendingTx() != 0 {
		return unix.EAGAIN
	}
	return 0
}

// acceptOne moves the descriptors of one packet to k.sent. A packet with an invalid descriptor is dropped and never
// completed, as in Linux.
func (k *FakeKernel) acceptOne() {
	first, bad := len(k.sent), false
	for {
		if k.tx.avail(1) == 0 {
			k.invalid("a transmitted packet has no last descriptor")
			bad = true
			break
		}
		d := *k.tx.next()
		chunk, size := d.Addr>>k.mem.shift, uint64(1)<<k.mem.shift
		if d.Len == 0 || d.Addr&(size-1)+uint64(d.Len) > size ||
			chunk >= uint64(len(k.busy)) {
			k.invalid("transmit descriptor %+v is invalid", d)
			bad = true
		} else if k.busy[chunk] {
			k.invalid("chunk %d is transmitted twice", chunk)
			bad = true
		} else {
			k.busy[chunk] = true
			k.sent = append(k.sent, d)
		}
		if d.Options&unix.XDP_PKT_CONTD == 0 {
			break
		}
	}
	if bad {
		k.sent = k.sent[:first]
		return
	}
	k.stats.Accepted++
}

// dropOne reads one packet from the transmit ring and completes it without sending it.
func (k *FakeKernel) dropOne() {
	if k.tx.avail(1) == 0 {
		return
	}
	first := len(k.sent)
	k.acceptOne()
	k.tx.release()
	k.stats.Lost++
	for _, d := range k.sent[first:] {
		k.done = append(k.done, d.Addr)
	}
	k.sent = k.sent[:first]
	if !k.cfg.Manual {
		k.complete(len(k.done))
	}
}

// Take appends the next transmitted frame to dst. It returns false if there is none. Take completes the frame, or with
// FakeConfig.Manual CompleteFrames does.
func (k *FakeKernel) Take(dst []byte) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken == len(k.sent) && k.cfg.Poller && k.bound && k.state == StateOK {
		k.accept(k.cfg.Budget)
	}
	if k.taken == len(k.sent) || !k.bound {
		return dst, false
	}
	for more := true; more; {
		d := k.sent[k.taken]
		dst = append(dst, k.mem.umem[d.Addr:d.Addr+uint64(d.Len)]...)
		k.done = append(k.done, d.Addr)
		k.taken++
		more = d.Options&unix.XDP_PKT_CONTD != 0
	}
	if 2*k.taken >= len(k.sent) {
		k.sent, k.taken = k.sent[:copy(k.sent, k.sent[k.taken:])], 0
	}
	k.stats.Taken++
	if !k.cfg.Manual {
		k.complete(len(k.done))
	}
	return dst, true
}

// CompleteFrames completes up to n descriptors of frames that Take returned, oldest first, and returns their number. A
// frame has one descriptor per chunk. A negative n means all.
func (k *FakeKernel) CompleteFrames(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n < 0 || n > len(k.done) {
		n = len(k.done)
	}
	return k.complete(n)
}

func (k *FakeKernel) complete(n int) int {
	n = min(n, int(k.comp.room(uint32(n))))
	for _, addr := range k.done[:n] {
		k.busy[addr>>k.mem.shift] = false
		k.comp.put(addr)
	}
	k.comp.publish()
	k.done = k.done[:copy(k.done, k.done[n:])]
	return n
}

// Sent returns the number of descriptors accepted for transmission and not yet taken.
func (k *FakeKernel) Sent() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sent) - k.taken
}
