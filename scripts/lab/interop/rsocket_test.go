package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// rsocket is one end of a connection of rdma-core's rsockets over xwarp, as far as rstream and riostream need it.
// rsockets carry byte streams by RDMA Writes.
//
// The private data of the MPA Request and Reply has 40 bytes:
//
//	0 version 1  1 flags (1 big-endian host, 2 iomap)  2..3 credits  7 iomap entries
//	8..15 address, 16..19 STag, 20..23 number of the list of receive buffers
//	24..31 address, 32..35 STag, 36..39 bytes of the first receive buffer
//
// The sender writes data into the peer's receive buffer. A Send of 4 bytes then announces how much: 3 bits are the
// operation, 29 bits the number. When half of its buffer is free again, the receiver writes the address of that half
// into an entry of the peer's list of receive buffers. It announces that by a Send, which also gives credits: the total
// number of messages, counted from the start, that the peer may send. An entry of the iomap describes a region that the
// peer may write to without any announcement. Entries and Sends are little-endian unless the flags say otherwise.
type rsocket struct {
	*peer
	half int // size of each of the two receive buffers, the halves of rbuf, in bytes

	rbuf, list, sbuf, msgs verbs.MR
	iomem                  verbs.MR // the region that the peer may write to by the iomap

	remoteList   uint64 // address of the peer's list of receive buffers
	remoteListID uint32 // STag of that list
	remoteSlots  int    // entries in that list
	slot         int    // entry of that list that is written next

	target             int    // index of the peer's buffer in targets to which data is written next
	targets            [2]sge // the unused parts of the peer's receive buffers
	sent, sendLimit    uint16 // messages sent; total number that may be sent
	sbufAt             int    // offset of the first free byte of sbuf
	rbufAt             int    // offset of the next byte of rbuf to read
	unread             []int  // lengths of the messages that have arrived and are not read yet
	taken              int    // bytes read since a half was last given back to the peer
	free               int    // offset of the half that is given back next
	messages, creditAt uint16 // messages read; number of them at which new credits are due
	mapped, ioKnown    bool
	ioTarget           sge
	closed             bool
	staged             []byte

	// The number of bytes that the peer will send in total, in messages of unit bytes; 0: unknown. It limits the
	// credits: if credits arrived after the peer has closed, Linux would discard the peer's unsent data.
	expect, unit     int
	granted, arrived int    // bytes for which the peer got buffers; bytes that have arrived
	allowed          uint16 // messages for which the peer got credits
}

// sge is a buffer in the peer's memory.
type sge struct {
	addr uint64
	key  uint32
	size uint32
}

const (
	rsDepth = 384 // depth of the send and the receive queue; the default of rsockets

	opData  = 0
	opSGL   = 4
	opIOMap = 6
	opCtrl  = 7

	ctrlDisconnect = 0
)

func newRsocket(t *testing.T, dev *sockets.Device, iosize int) *rsocket {
	const half = 1 << 18
	r := &rsocket{peer: newPeer(t, dev, rsDepth+16), half: half, creditAt: rsDepth / 2, slot: 1,
		free: half, taken: half, granted: half, allowed: rsDepth}
	write := verbs.LocalWrite | verbs.RemoteWrite
	r.rbuf = r.register(make([]byte, 2*half), write)
	r.list = r.register(make([]byte, 2*16+24), write)
	r.sbuf = r.register(make([]byte, half), 0)
	r.msgs = r.register(make([]byte, 4*(rsDepth+16)), verbs.LocalWrite)
	if iosize > 0 {
		r.iomem = r.register(make([]byte, iosize), write)
	}
	r.received = r.message
	r.closing = func() bool { return r.closed }
	for i := range rsDepth + 16 {
		r.receive(uint64(i))
	}
	return r
}

func (r *rsocket) receive(id uint64) {
	if err := r.qp.PostRecv(&verbs.RecvWR{ID: id,
		SGL: []verbs.SGE{r.msgs.SGE(4*int(id), 4)}}); err != nil {
		r.t.Error(err)
	}
}

func base(mr verbs.MR) uint64 { return uint64(mr.SGE(0, 0).TO) }

// private returns the private data that describes the buffers of this end.
func (r *rsocket) private() []byte {
	b := []byte{1, 2, rsDepth >> 8, rsDepth & 0xff, 0, 0, 0, 1}
	for _, x := range []struct {
		mr verbs.MR
		n  int
	}{{r.list, 2}, {r.rbuf, r.half}} {
		b = binary.BigEndian.AppendUint64(b, base(x.mr))
		b = binary.BigEndian.AppendUint32(b, uint32(x.mr.STag()))
		b = binary.BigEndian.AppendUint32(b, uint32(x.n))
	}
	return b
}

// meet takes the peer's buffers and credits from its private data.
func (r *rsocket) meet(b []byte) error {
	if len(b) < 40 || b[0] != 1 || b[1] != 2 {
		return fmt.Errorf("private data %x is no rsocket's on a little-endian host", b)
	}
	r.sendLimit = binary.BigEndian.Uint16(b[2:])
	r.remoteList = binary.BigEndian.Uint64(b[8:])
	r.remoteListID, r.remoteSlots = binary.BigEndian.Uint32(b[16:]),
		int(binary.BigEndian.Uint32(b[20:]))
	r.targets[0] = sge{binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint32(b[32:]),
		binary.BigEndian.Uint32(b[36:])}
	return nil
}

// message handles one Send of the peer.
func (r *rsocket) message(c verbs.Completion) {
	m := binary.LittleEndian.Uint32(r.msgs.Bytes()[4*c.ID:])
	op, n := m>>29, int(m&0x1fffffff)
	switch op {
	case opData:
		r.unread = append(r.unread, n)
	case opSGL:
		r.sendLimit = uint16(n)
		r.reload()
	case opIOMap:
		b := r.list.Bytes()[2*16:]
		le := binary.LittleEndian
		r.ioTarget, r.ioKnown = sge{le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:])}, true
	case opCtrl:
		r.closed = r.closed || n == ctrlDisconnect
	}
	r.receive(c.ID)
}

// reload takes the entries that the peer has written into the list of receive buffers before its Send, and clears them.
func (r *rsocket) reload() {
	le := binary.LittleEndian
	for i := range r.targets {
		b := r.list.Bytes()[16*i:][:16]
		if n := le.Uint32(b[12:]); n > 0 {
			r.targets[i] = sge{le.Uint64(b), le.Uint32(b[8:]), n}
			clear(b)
		}
	}
}

// write copies b into sbuf and posts a Write of it to the peer's memory at addr.
func (r *rsocket) write(b []byte, addr uint64, key uint32) error {
	if r.sbufAt+len(b) > len(r.sbuf.Bytes()) {
		return errors.New("the send buffer is too small for the test")
	}
	copy(r.sbuf.Bytes()[r.sbufAt:], b)
	err := r.post(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{r.sbuf.SGE(r.sbufAt, len(b))},
		RemoteSTag: ddp.STag(key), RemoteTO: ddp.TO(addr)})
	r.sbufAt += len(b)
	return err
}

func (r *rsocket) say(op uint32, n int) error {
	return r.post(verbs.SendWR{Op: rdmap.WRSend, Inline: binary.LittleEndian.AppendUint32(nil,
		op<<29|uint32(n)&0x1fffffff)})
}

// settle waits until all posted work requests are complete, and then frees all of sbuf.
func (r *rsocket) settle(ctx context.Context) error {
	err := r.until(ctx, func() bool { return r.busy == 0 })
	r.sbufAt = 0
	return err
}

// credits gives the peer a half of rbuf that was read, or new credits, or both. It does nothing if neither is due or
// the peer needs no more.
func (r *rsocket) credits() error {
	if r.closed || r.enough() || r.taken < r.half && int16(r.messages-r.creditAt) < 0 {
		return nil
	}
	r.creditAt = r.messages + rsDepth/2
	if r.taken >= r.half {
		le := binary.LittleEndian
		b := le.AppendUint64(nil, base(r.rbuf)+uint64(r.free))
		b = le.AppendUint32(le.AppendUint32(b, uint32(r.rbuf.STag())), uint32(r.half))
		if err := r.write(b, r.remoteList+16*uint64(r.slot), r.remoteListID); err != nil {
			return err
		}
		r.taken -= r.half
		r.granted += r.half
		r.free = (r.free + r.half) % (2 * r.half)
		r.slot = (r.slot + 1) % r.remoteSlots
	}
	r.allowed = r.messages + rsDepth
	return r.say(opSGL, int(r.allowed))
}

// enough reports whether the peer has buffers and credits for all that it will still send. It allows for some more
// messages, because each end of a buffer may split a message in two.
func (r *rsocket) enough() bool {
	if r.expect == 0 || r.granted < r.expect {
		return false
	}
	left := (r.expect - r.arrived) / r.unit
	return int(int16(r.allowed-r.messages)) > left+4
}

// sendMap writes an entry for iomem, with offset 0, into the peer's iomap, and announces it.
func (r *rsocket) sendMap() error {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 8), base(r.iomem))
	b = le.AppendUint32(le.AppendUint32(b, uint32(r.iomem.STag())), uint32(len(r.iomem.Bytes())))
	r.mapped = true
	r.sent++
	return firstError(r.write(b, r.remoteList+16*uint64(r.remoteSlots), r.remoteListID),
		func() error {
			return r.say(opIOMap, 0)
		})
}

// send sends all of b, as rsend does, and waits until its Writes are complete.
func (r *rsocket) send(ctx context.Context, b []byte) error {
	if err := r.credits(); err != nil {
		return err
	}
	if r.iomem != nil && !r.mapped {
		if err := r.sendMap(); err != nil {
			return err
		}
	}
	for len(b) > 0 {
		ready := func() bool {
			return r.closed || r.sent != r.sendLimit && r.targets[r.target].size > 0
		}
		if err := r.until(ctx, ready); err != nil {
			return err
		}
		if r.closed {
			return errors.New("the peer closed")
		}
		t := &r.targets[r.target]
		n := min(len(b), int(t.size))
		if err := firstError(r.write(b[:n], t.addr, t.key), func() error {
			return r.say(opData, n)
		}); err != nil {
			return err
		}
		t.addr += uint64(n)
		if t.size -= uint32(n); t.size == 0 {
			r.target = (r.target + 1) % len(r.targets)
		}
		r.sent++
		b = b[n:]
	}
	return r.settle(ctx)
}

// recv receives exactly n bytes, as rrecv with MSG_WAITALL.
func (r *rsocket) recv(ctx context.Context, n int) ([]byte, error) {
	for len(r.staged) < n {
		if err := r.credits(); err != nil {
			return nil, err
		}
		if err := r.until(ctx, func() bool { return r.closed || len(r.unread) > 0 }); err != nil {
			return nil, err
		}
		if len(r.unread) == 0 {
			return nil, errors.New("the peer closed")
		}
		k := r.unread[0]
		r.unread = r.unread[1:]
		for range k {
			r.staged = append(r.staged, r.rbuf.Bytes()[r.rbufAt])
			r.rbufAt = (r.rbufAt + 1) % len(r.rbuf.Bytes())
		}
		r.taken += k
		r.arrived += k
		r.messages++
	}
	b := r.staged[:n:n]
	r.staged = r.staged[n:]
	return b, nil
}

// shut closes the connection. Each side announces its close by a Send. If the two cross, the peer may close before it
// receives the announcement of this end.
func (r *rsocket) shut(ctx context.Context) error {
	if !r.closed {
		err := firstError(r.say(opCtrl, ctrlDisconnect), func() error {
			return r.until(ctx, func() bool { return r.busy == 0 || r.flushed })
		})
		if err != nil && !r.closed {
			return err
		}
	}
	if !r.flushed {
		r.qp.Disconnect()
	}
	select {
	case <-r.qp.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect connects to the peer and exchanges the private data.
func (r *rsocket) connect(ctx context.Context, to netip.AddrPort) error {
	if err := r.dev.Dial(ctx, to, r.qp, verbs.DialConfig{PrivateData: r.private()}); err != nil {
		return err
	}
	return r.meet(r.qp.Params().PrivateData)
}
