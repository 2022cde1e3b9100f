package impair

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// recutter acts as a middlebox that takes the TCP segments of a flow apart and makes new segments, called pieces, of
// their bytes.
//
// For each flow it holds a run: segments that follow each other without a gap. When a segment arrives that does not
// continue the run, such as a retransmission, a pure ACK, a SYN or one with a wrong checksum, the run is sent on first.
// So no segment overtakes another, and every byte keeps its sequence number. A piece carries the header of the segment
// that its last byte came from.
type recutter struct {
	p      *Path
	rand   *rand.Rand
	runs   map[flow]*run
	active []*run    // the same runs, oldest first: unlike that of a map, this order is the same in every replay
	spare  []*run    // ended runs for reuse
	next   tick.Time // no run is due before this time
}

// flow identifies one direction of a TCP connection.
type flow struct {
	addrs [32]byte // source and destination address as in the IP header; IPv4 addresses fill the first eight bytes
	ports [4]byte  // source and destination port
}

// run is contiguous payload of one flow.
type run struct {
	key       flow
	bufs      []*Buf // Buf.payload is the offset of the first byte that was not sent on
	byteCount int    // bytes that were not sent on
	limit     int    // number of segments at which the run is cut
}

func (r *recutter) init(p *Path, g *rand.Rand) {
	*r = recutter{p: p, rand: g, runs: make(map[flow]*run), next: tick.Never}
}

// add adds a TCP segment to the run of its flow, or passes it on unchanged.
func (r *recutter) add(b *Buf, now tick.Time) {
	f, v := b.Data, &b.view
	key := flowOf(f, v)
	x := r.runs[key]
	n := v.end - v.payload
	wrong := n > 0 && tcpSum(f, v) != 0
	if n == 0 || wrong || f[v.l4+tcpFlags]&byte(wire.SYN|wire.RST|wire.URG) != 0 {
		if wrong {
			r.p.c.BadChecksum++
		}
		if x != nil {
			r.flush(x, now)
		}
		r.p.damage(b, now)
		return
	}
	if x != nil && !continues(x.bufs[len(x.bufs)-1], b) {
		r.flush(x, now)
		x = nil
	}
	if x == nil {
		x = r.startRun(key, now)
	}
	r.p.c.RecutIn++
	b.payload = v.payload
	x.bufs = append(x.bufs, b)
	x.byteCount += n
	r.next = min(r.next, r.due(x))
	switch {
	case f[v.l4+tcpFlags]&byte(wire.FIN) != 0:
		r.flush(x, now)
	case len(x.bufs) >= x.limit || x.byteCount >= maxRecutBytes:
		r.cut(x, now)
	}
}

// flowOf returns the flow of a TCP segment.
func flowOf(f []byte, v *view) (k flow) {
	if v.v6 {
		copy(k.addrs[:], f[v.ip+8:v.ip+40])
	} else {
		copy(k.addrs[:], f[v.ip+12:v.ip+20])
	}
	copy(k.ports[:], f[v.l4:])
	return k
}

// continues reports whether b's payload follows a's and their headers are so alike that one segment may carry bytes of
// both.
func continues(a, b *Buf) bool {
	va, vb := &a.view, &b.view
	ha, hb := a.Data[va.l4:], b.Data[vb.l4:]
	const mayDiffer = byte(wire.PSH | wire.FIN)
	return va.v6 == vb.v6 && va.l4-va.ip == vb.l4-vb.ip &&
		bytes.Equal(a.Data[:va.ip], b.Data[:vb.ip]) && sameService(a, b) &&
		binary.BigEndian.Uint32(hb[wire.SeqAt:]) == binary.BigEndian.Uint32(ha[wire.SeqAt:])+uint32(
			va.end-va.payload) &&
		ha[tcpOffset]&15 == hb[tcpOffset]&15 && (ha[tcpFlags]^hb[tcpFlags])&^mayDiffer == 0
}

// sameService reports whether the IP headers of a and b have the same DSCP, ECN, TTL or hop limit, flow label and
// don't-fragment bit.
func sameService(a, b *Buf) bool {
	ha, hb := a.Data[a.view.ip:], b.Data[b.view.ip:]
	if a.view.v6 {
		return bytes.Equal(ha[:4], hb[:4]) && ha[7] == hb[7]
	}
	return ha[1] == hb[1] && ha[6] == hb[6] && ha[8] == hb[8]
}

// startRun returns a new, empty run for a flow. At maxRuns it first ends the oldest run.
func (r *recutter) startRun(key flow, now tick.Time) *run {
	if len(r.active) >= maxRuns {
		r.flush(r.active[0], now)
	}
	var x *run
	if k := len(r.spare) - 1; k >= 0 {
		x, r.spare = r.spare[k], r.spare[:k]
	} else {
		x = new(run)
	}
	*x = run{key: key, bufs: x.bufs[:0], limit: r.limit()}
	r.runs[key] = x
	r.active = append(r.active, x)
	return x
}

// limit draws the number of segments that a run collects before it is cut.
func (r *recutter) limit() int { return 2 + r.rand.IntN(maxRecutSegments-1) }

// due returns when a run must be sent on. The run must not be empty.
func (r *recutter) due(x *run) tick.Time { return x.bufs[0].arrive.Add(recutHold) }

// cut sends most of a run on in pieces. It keeps the last bytes, to merge them with those of later segments: otherwise
// the run's end would be a boundary of both old and new segments.
func (r *recutter) cut(x *run, now tick.Time) {
	for x.byteCount > 0 && x.byteCount > r.largest(x) {
		r.emit(x, r.size(x), now)
	}
	if x.byteCount == 0 || len(x.bufs) >= maxRecutSegments {
		r.flush(x, now)
		return
	}
	x.limit = max(r.limit(), len(x.bufs)+1)
}

// flush sends all bytes of a run on in pieces and ends the run.
func (r *recutter) flush(x *run, now tick.Time) {
	for x.byteCount > 0 {
		r.emit(x, r.size(x), now)
	}
	delete(r.runs, x.key)
	i := slices.Index(r.active, x)
	r.active = slices.Delete(r.active, i, i+1)
	r.spare = append(r.spare, x)
}

// flushDue ends the runs that are due by now.
func (r *recutter) flushDue(now tick.Time) {
	r.next = tick.Never
	for i := 0; i < len(r.active); {
		if x := r.active[i]; r.due(x) <= now {
			r.flush(x, now) // takes x out of active
			continue
		}
		r.next = min(r.next, r.due(r.active[i]))
		i++
	}
}

func (r *recutter) flushAll(now tick.Time) {
	for len(r.active) > 0 {
		r.flush(r.active[0], now)
	}
	r.next = tick.Never
}

// largest returns the largest payload in bytes that a piece of the run may carry.
func (r *recutter) largest(x *run) int {
	mtu := r.p.linkMTU
	if r.p.cfg.MTU > 0 {
		mtu = min(mtu, r.p.cfg.MTU)
	}
	header := 0
	for _, b := range x.bufs {
		header = max(header, b.view.payload-b.view.ip)
	}
	return max(1, mtu-header)
}

// size draws the length of the next piece's payload: half of the pieces are full-sized, most others have any length,
// and one in 16 has at most 64 bytes.
func (r *recutter) size(x *run) int {
	most := r.largest(x)
	n := most
	switch d := r.rand.IntN(16); {
	case d < 7:
		n = 1 + r.rand.IntN(most)
	case d == 7:
		n = 1 + r.rand.IntN(min(most, 64))
	}
	return min(n, x.byteCount)
}

// emit makes one piece of the run's first n bytes and passes it to the next stage.
func (r *recutter) emit(x *run, n int, now tick.Time) {
	first := x.bufs[0]
	seq := binary.BigEndian.Uint32(first.Data[first.view.l4+wire.SeqAt:]) + uint32(
		first.payload-first.view.payload)
	rest := n
	model := x.bufs[slices.IndexFunc(x.bufs, func(b *Buf) bool {
		rest -= b.view.end - b.payload
		return rest <= 0
	})]
	out := r.p.pool.Get(model.view.payload + n)
	copy(out.Data, model.Data[:model.view.payload])
	out.view, out.arrive = model.view, first.arrive
	ends := x.cutBytes(out.Data[model.view.payload:], r.p.pool)

	h := out.Data[out.view.l4:]
	binary.BigEndian.PutUint32(h[wire.SeqAt:], seq)
	h[tcpFlags] = h[tcpFlags]&^byte(wire.PSH|wire.FIN) | ends
	out.view.setLength(out.Data, len(out.Data))
	setTCPChecksum(out.Data, &out.view)
	r.p.c.RecutOut++
	r.p.damage(out, now)
}

// cutBytes moves the run's first bytes to dst, until dst is full. It returns the PSH and FIN flags of the segments
// whose last byte it moved.
func (x *run) cutBytes(dst []byte, pool *Pool) (ends byte) {
	x.byteCount -= len(dst)
	for len(dst) > 0 {
		b := x.bufs[0]
		k := copy(dst, b.Data[b.payload:b.view.end])
		dst = dst[k:]
		b.payload += k
		if b.payload < b.view.end {
			break
		}
		ends |= b.Data[b.view.l4+tcpFlags] & byte(wire.PSH|wire.FIN)
		pool.Put(b)
		x.bufs = slices.Delete(x.bufs, 0, 1)
	}
	return ends
}
