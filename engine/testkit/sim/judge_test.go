package sim

import (
	"fmt"
	"hash/crc32"
	"slices"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// judge reads every frame that hosts send and checks the invariants of each flow, which hold under any fault.
type judge struct {
	flows map[tcp.Tuple]*flow
	// cuts is set if the path MTU changes, so segments may be retransmitted with other boundaries.
	cuts bool
	sent uint64
	err  error
	// revoked has the ports of connections whose regions are revoked: retransmitted bytes of these are zero.
	revoked map[uint16]bool
	// silent are addresses without a host: nothing may be sent there.
	silent map[ip.Addr]bool
}

// flow is one direction of a connection, as seen from its sender's frames.
type flow struct {
	fin       bool
	finAt     seq.Num
	records   bool // carries FPDUs: boundaries are fixed
	iss       seq.Num
	ackSeen   bool
	ack, edge seq.Num
	scale     uint8 // shift of the window field
	scaleMine bool
	turned    bool  // its sequence numbers have passed 2^31 or 0
	settled   bool  // scale is the negotiated window scale
	lost      bool  // the sender's host rebooted and has lost its state
	before    *flow // flow of an earlier SYN-ACK, if a duplicate SYN got a cookie: the peer may accept either
	segs      map[seq.Num]sentSegment
	fpdus     fpdus // if it carries FPDUs
}

type sentSegment struct {
	n   int
	sum uint32
}

func newJudge() *judge {
	return &judge{flows: map[tcp.Tuple]*flow{}, revoked: map[uint16]bool{},
		silent: map[ip.Addr]bool{}}
}

// rebooted records a reboot of host h.
func (j *judge) rebooted(h *Host) {
	for t, f := range j.flows {
		if slices.Contains(h.cfg.Addrs, t.Local) {
			f.lost = true
		}
	}
}

func (j *judge) fault(t tcp.Tuple, now tick.Time, format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf("%v:%d > %v:%d: %s", t.Local, t.LocalPort, t.Remote, t.RemotePort,
			fmt.Sprintf(format, args...))
	}
}

func (j *judge) see(frame []byte, now tick.Time) {
	var e ip.Ethernet
	off, err := e.Decode(frame)
	if err != nil {
		j.err = err
		return
	}
	var h ip.Header
	n, err := h.Decode(frame[off:])
	if err != nil || h.Proto != ip.ProtoTCP {
		return
	}
	b := frame[off+n:][:h.PayloadLen]
	var th wire.Header
	if n, err = th.Decode(b); err != nil {
		j.err = fmt.Errorf("own header cannot be decoded: %w", err)
		return
	}
	t := tcp.Tuple{Local: h.Src, Remote: h.Dst, LocalPort: th.SrcPort, RemotePort: th.DstPort}
	if wire.Fold(wire.Sum(b, h.PseudoSum(len(b)))) != 0xffff {
		j.fault(t, now, "own checksum is wrong")
	}
	if j.silent[t.Remote] {
		j.fault(t, now, "an answer to an address of no host")
	}
	j.segment(t, &th, b[n:], now)
}

func (j *judge) segment(t tcp.Tuple, h *wire.Header, payload []byte, now tick.Time) {
	f := j.flows[t]
	if h.Flags&wire.SYN != 0 {
		if f == nil || f.iss != h.Seq {
			f = &flow{iss: h.Seq, records: t.LocalPort == rdmaPort || t.RemotePort == rdmaPort,
				segs: map[seq.Num]sentSegment{}, before: f, fpdus: fpdus{next: h.Seq.Add(1)}}
			j.flows[t] = f
		}
		if h.Opt.Present&wire.HasWScale != 0 {
			f.scale = min(h.Opt.WScale, 14)
		}
		f.scaleMine = h.Opt.Present&wire.HasWScale != 0
		if h.Flags&wire.ACK != 0 {
			f.ackSeen, f.ack, f.edge = true, h.Ack, h.Ack.Add(int(h.Window))
		}
		return
	}
	if h.Flags&wire.RST != 0 {
		return
	}
	if f == nil {
		j.fault(t, now, "a segment without SYN before")
		return
	}
	if p := j.other(t); f.lost && p != nil && h.Flags == wire.ACK && h.Ack == p.iss.Add(1) &&
		len(payload) == 0 {
		return // of a half-open connection from an old SYN, whose SYN-ACK found no slot
	}
	if b := f.before; !f.settled && b != nil && h.Seq == b.iss.Add(1) {
		f = b
		j.flows[t] = b
	}
	f.before = nil
	j.window(t, f, h, now)
	if len(payload) > 0 {
		j.payload(t, f, h, payload, now)
	}
	if h.Flags&wire.FIN != 0 {
		at := h.Seq.Add(len(payload))
		if f.fin && f.finAt != at {
			j.fault(t, now, "FIN moved from %d to %d", f.finAt.Diff(f.iss), at.Diff(f.iss))
		}
		f.fin, f.finAt = true, at
	}
}

// other returns the reverse flow of t's, or nil.
func (j *judge) other(t tcp.Tuple) *flow {
	return j.flows[tcp.Tuple{Local: t.Remote, Remote: t.Local, LocalPort: t.RemotePort,
		RemotePort: t.LocalPort}]
}

// window checks that the acknowledgement number never decreases, and the right edge of the window not before a FIN (RFC
// 9293, 3.8.6). It also checks the order of SACK blocks.
func (j *judge) window(t tcp.Tuple, f *flow, h *wire.Header, now tick.Time) {
	if h.Flags&wire.ACK == 0 {
		j.fault(t, now, "a segment without ACK")
		return
	}
	peer := j.other(t)
	if !f.settled {
		f.settled = true
		if !f.scaleMine || peer == nil || !peer.scaleMine {
			f.scale = 0
		}
	}
	edge := h.Ack.Add(int(h.Window) << f.scale)
	if f.ackSeen {
		if h.Ack.Less(f.ack) {
			j.fault(t, now, "acknowledgement moved back by %d", f.ack.Diff(h.Ack))
		}
		if edge.Less(f.edge) && !(f.fin || peer != nil && peer.fin) {
			j.fault(t, now, "right edge of the window moved back by %d (window %d scale %d)",
				f.edge.Diff(edge), h.Window, f.scale)
		}
	}
	if !f.ackSeen || f.edge.Less(edge) {
		f.edge = edge
	}
	f.ackSeen, f.ack = true, h.Ack
	for i := range int(h.Opt.NSACK) {
		r := h.Opt.SACK[i]
		if r.Len() <= 0 || i > 0 && r.Start.Less(h.Ack) {
			j.fault(t, now, "SACK block %d is %d..%d relative to the acknowledgement", i,
				r.Start.Diff(h.Ack), r.End.Diff(h.Ack))
		}
	}
}

// payload checks that retransmitted bytes are the same bytes, and that records keep their boundaries.
func (j *judge) payload(t tcp.Tuple, f *flow, h *wire.Header, payload []byte, now tick.Time) {
	j.sent++
	if f.fin && f.finAt.Less(h.Seq.Add(len(payload))) {
		j.fault(t, now, "bytes beyond the FIN")
	}
	f.wrapped(h.Seq.Add(len(payload)))
	if peer := j.other(t); f.records && peer != nil {
		f.fpdus.sent(h.Seq, payload, peer.fpdus.wants)
	}
	sum := crc32.Checksum(payload, castagnoli)
	old, again := f.segs[h.Seq]
	switch {
	case again && old.n == len(payload) && old.sum != sum && !j.revoked[t.LocalPort] &&
		!j.revoked[t.RemotePort]:
		j.fault(t, now, "%d bytes at %d are others when sent again", len(payload),
			h.Seq.Diff(f.iss))
	case again && old.n != len(payload) && f.records && !j.cuts:
		j.fault(t, now, "%d bytes at %d were %d at first", len(payload), h.Seq.Diff(f.iss), old.n)
	}
	f.segs[h.Seq] = sentSegment{len(payload), sum}
}
