package rdmap

import (
	"math/bits"
	"unsafe"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// ringSize returns the smallest power of two that is at least n.
func ringSize(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// sgl is the resolved scatter/gather list of a work request. pieces and regions have MaxSGE
// entries of room from the start.
type sgl struct {
	pieces  [][]byte
	regions []*ddp.MR
	total   uint64 // bytes of the list
	usable  uint64 // bytes of pieces: from the start of the list up to memory that may not be used
}

// resolve fills s with the memory that list names and holds its regions. If it returns a fault, it holds none.
func (s *sgl) resolve(t *ddp.Table, pd *ddp.PD, stream ddp.StreamID, list []SGE,
	need ddp.Access) ddp.Fault {
	s.pieces, s.regions, s.total = s.pieces[:0], s.regions[:0], 0
	for _, e := range list {
		s.total += uint64(e.Len)
		if e.Len == 0 {
			continue
		}
		m, b, f := t.Find(pd, stream, e.STag, e.TO, int(e.Len), need)
		if f != ddp.OK {
			s.release()
			return f
		}
		s.hold(m, b)
	}
	s.usable = s.total
	return ddp.OK
}

// hold appends b, a piece of m, and holds m.
func (s *sgl) hold(m *ddp.MR, b []byte) {
	m.Hold()
	s.regions = append(s.regions, m)
	s.pieces = append(s.pieces, b)
}

// resolveSink is resolve for a receive, whose message may be shorter than list: s gets the memory up to the first byte
// that may not be written.
func (s *sgl) resolveSink(t *ddp.Table, pd *ddp.PD, stream ddp.StreamID, list []SGE) {
	if s.resolve(t, pd, stream, list, ddp.LocalWrite) == ddp.OK {
		return
	}
	s.total, s.usable = 0, 0
	for _, e := range list {
		full := s.usable == s.total
		s.total += uint64(e.Len)
		if e.Len == 0 || !full {
			continue
		}
		m, _, f := t.Find(pd, stream, e.STag, e.TO, 0, ddp.LocalWrite)
		if f != ddp.OK {
			continue
		}
		inRegion := uint64(m.Base()) + uint64(m.Len()) - uint64(e.TO)
		n := min(uint64(e.Len), inRegion)
		if _, b, _ := t.Find(pd, stream, e.STag, e.TO, int(n), ddp.LocalWrite); n > 0 {
			s.hold(m, b)
			s.usable += n
		}
	}
}

// release releases the regions; the list must not be used afterwards.
func (s *sgl) release() {
	for i, m := range s.regions { // mostly one: clear would take longer
		m.Unhold()
		s.regions[i], s.pieces[i] = nil, nil
	}
	s.pieces, s.regions = s.pieces[:0], s.regions[:0]
}

// makeSGLs gives n lists capacity for sge pieces each, in two allocations for all. at returns list i.
func makeSGLs(n, sge int, at func(i int) *sgl) {
	pieces, regions := make([][]byte, n*sge), make([]*ddp.MR, n*sge)
	for i := range n {
		from, to := i*sge, (i+1)*sge
		*at(i) = sgl{pieces: pieces[from:from:to], regions: regions[from:from:to]}
	}
}

// sendWQE is a send work request in the queue.
type sendWQE struct {
	id        uint64
	op        WROp
	flags     WRFlags
	status    Status // not Success: it failed, or will when its turn comes
	acked     bool   // the peer's TCP has acknowledged all of it
	answered  bool   // response delivered, or a Report covers it, or neither is due
	access    ddp.Access
	sent      uint32 // payload bytes frozen; Read: bytes requested
	total     uint32
	msn       ddp.MSN // of its first message
	remote    ddp.STag
	to        ddp.TO
	inv       ddp.STag
	imm       [ImmLen]byte
	atomic    AtomicRequest
	mem       sgl
	inline    [1][]byte // room for MaxInline bytes, once allocInline was called for the slot
	useInline bool
	asks      bool   // its last segment asks for a Report
	number    uint32 // progress.sent after this request was counted
}

func (w *sendWQE) wantsResponse() bool { return w.op.wantsResponse() }

// requests returns how many Read or Atomic Requests w sends.
func (w *sendWQE) requests() int { return max(len(w.mem.pieces), 1) }

// part returns the index of the piece of w's memory that begins off bytes into it.
func (w *sendWQE) part(off uint32) (i int) {
	for at := uint32(0); at < off; i++ {
		at += uint32(len(w.mem.pieces[i]))
	}
	return i
}

// readRequest returns the Read Request for the piece that begins off bytes into w's memory, and its index.
func (w *sendWQE) readRequest(off uint32) (r ReadRequest, i int) {
	r = ReadRequest{SinkSTag: 1, SrcSTag: w.remote, SrcTO: w.to + ddp.TO(off)} // some adapters fail on STag 0
	if w.total == 0 {
		return r, 0
	}
	i = w.part(off)
	m, b := w.mem.regions[i], w.mem.pieces[i]
	at, _ := m.Offset(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	r.SinkSTag, r.SinkTO, r.Size = m.STag(), m.Base()+ddp.TO(at), uint32(len(b))
	return r, i
}

// isLocal reports whether w sends nothing: drainLocals executes it.
func (w *sendWQE) isLocal() bool { return w.op == WRLocalInv || w.op == WRBindMW }

func (w *sendWQE) isDone() bool { return w.acked && w.answered }

// sendQueue is the ring of send work requests. The counters never wrap:
//
//	head      first not completed
//	next      first not wholly frozen, head <= next <= tail
//	tail      where the next one is posted
//
// After the end of the stream head equals tail, and TCP may retransmit the kept slots before it.
type sendQueue struct {
	ring             []sendWQE
	mask             uint64
	depth            uint64
	maxInline        int // bytes of inline data of each
	head, next, tail uint64
	reported         uint64 // first that may not be covered by a Report
	locals           int    // work requests from next on that send nothing, or that failed when they were posted
	kept             uint64
	sendMSN          ddp.MSN // next message on queue 0
	readMSN          ddp.MSN // next message on queue 1
	atomicMSN        ddp.MSN // of the response, on queue 3, to the atomic that is sent next
}

func (s *sendQueue) init(depth, sge, inline int) {
	n := ringSize(depth)
	*s = sendQueue{ring: make([]sendWQE, n), mask: uint64(n - 1), depth: uint64(depth),
		maxInline: inline, sendMSN: 1, readMSN: 1, atomicMSN: 1}
	makeSGLs(n, sge, func(i int) *sgl { return &s.ring[i].mem })
}

// inlineStep is how many slots get their memory for inline data together. Most queue pairs never post any.
const inlineStep = 64

// allocInline allocates the inline memory of slot i and its neighbours.
func (s *sendQueue) allocInline(i uint64) {
	first := i & s.mask &^ (inlineStep - 1)
	group := s.ring[first:min(first+inlineStep, uint64(len(s.ring)))]
	room := make([]byte, len(group)*s.maxInline)
	for j := range group {
		group[j].inline[0] = room[j*s.maxInline : j*s.maxInline : (j+1)*s.maxInline]
	}
}

func (s *sendQueue) len() int             { return int(s.tail - s.head) }
func (s *sendQueue) at(i uint64) *sendWQE { return &s.ring[i&s.mask] }

// oldestKept returns the first work request that TCP may still retransmit.
func (s *sendQueue) oldestKept() uint64 { return s.head - s.kept }

func (s *sendQueue) has(seq uint64) bool { return seq-s.oldestKept() < s.tail-s.oldestKept() }

// firstUnfrozen returns the first work request of which nothing is frozen.
func (s *sendQueue) firstUnfrozen() uint64 {
	if s.next != s.tail && s.at(s.next).sent > 0 {
		return s.next + 1
	}
	return s.next
}

// releaseAcked releases kept work requests that TCP's peer has acknowledged.
func (s *sendQueue) releaseAcked() {
	for ; s.kept > 0 && s.at(s.oldestKept()).acked; s.kept-- {
		s.at(s.oldestKept()).mem.release()
	}
}

// markOldest marks the oldest unfinished work request as the one that failed.
func (s *sendQueue) markOldest(st Status) {
	if s.head != s.tail {
		if w := s.at(s.head); w.status == Success {
			w.status = st
		}
	}
}

// outboundRead is a Read or atomic of this side that waits for its response.
type outboundRead struct {
	seq      uint64 // index of its work request in the send queue
	rtr      bool   // it is the RTR Read, which is not in the send queue
	last     bool   // its response is the last of its work request
	atomic   bool
	stag     ddp.STag // sink
	to       ddp.TO
	size     uint32
	received uint32 // bytes delivered
	mem      []byte
	mr       *ddp.MR
	reqID    uint32
	msn      ddp.MSN             // of the Atomic Response on queue 3
	resp     [AtomicRespLen]byte // the Atomic Response, as placed
}

// firstReads is how many Reads of either direction have room from the start. The tables double when more are
// outstanding.
const firstReads = 4

// outboundReads is the ring of outstanding Reads and atomics, in request order.
type outboundReads struct {
	ring       []outboundRead
	mask       uint32
	head, tail uint32
}

func (r *outboundReads) init(n int) {
	n = ringSize(min(n, firstReads))
	*r = outboundReads{ring: make([]outboundRead, n), mask: uint32(n - 1)}
}

func (r *outboundReads) reset() {
	clear(r.ring)
	r.head = r.tail
}

func (r *outboundReads) len() int               { return int(r.tail - r.head) }
func (r *outboundReads) first() *outboundRead   { return &r.ring[r.head&r.mask] }
func (r *outboundReads) at(i int) *outboundRead { return &r.ring[(r.head+uint32(i))&r.mask] }
func (r *outboundReads) pop()                   { r.ring[r.head&r.mask] = outboundRead{}; r.head++ }

// push appends e. The caller checks the ORD.
func (r *outboundReads) push(e outboundRead) {
	if r.len() == len(r.ring) {
		bigger := make([]outboundRead, 2*len(r.ring))
		mask := uint32(len(bigger) - 1)
		for i := r.head; i != r.tail; i++ {
			bigger[i&mask] = r.ring[i&r.mask]
		}
		r.ring, r.mask = bigger, mask
	}
	r.ring[r.tail&r.mask] = e
	r.tail++
}

// inboundRequest is a Read or atomic of the peer.
type inboundRequest struct {
	head   [ddp.UntaggedLen]byte // its DDP header, for a Terminate
	raw    [AtomicRequestLen]byte
	placed int // bytes behind the DDP header that were placed
	atomic bool
	read   ReadRequest
	op     AtomicRequest
	value  uint64 // atomic: original value
	sent   uint32 // Read: bytes frozen
	msn    ddp.MSN
	mr     *ddp.MR // held while bytes of it may be sent
	mem    [1][]byte
}

// inboundRequests is queue 1: the peer's Reads and atomics. Counters never wrap:
//
//	acked     first whose response TCP does not have wholly
//	next      first whose response is not wholly frozen
//	tail      first not delivered; message tail+1 comes next
type inboundRequests struct {
	ring              []inboundRequest
	mask              uint64
	maxSize           int // the largest length of the ring
	acked, next, tail uint64
	atomicMSN         ddp.MSN // of the next Atomic Response
}

func (r *inboundRequests) init(ird int) {
	most := ringSize((1 + ackSlack) * max(ird, 1))
	n := min(most, firstReads)
	*r = inboundRequests{ring: make([]inboundRequest, n), mask: uint64(n - 1), maxSize: most,
		atomicMSN: 1}
}

func (r *inboundRequests) at(i uint64) *inboundRequest { return &r.ring[i&r.mask] }
func (r *inboundRequests) waiting() int                { return int(r.tail - r.next) }

// nextMSN returns the MSN of the next request to deliver.
func (r *inboundRequests) nextMSN() ddp.MSN { return ddp.MSN(r.tail + 1) }

// freeSlots returns how many requests, beginning with the next one, may arrive: ird limits them.
func (r *inboundRequests) freeSlots(ird int) int {
	return max(0, min(ird-r.waiting(), r.maxSize-int(r.tail-r.acked)))
}

// slotFor returns slot i, for which there is room, and grows the ring if necessary.
func (r *inboundRequests) slotFor(i uint64) *inboundRequest {
	for i-r.acked >= uint64(len(r.ring)) {
		bigger := make([]inboundRequest, 2*len(r.ring))
		mask := uint64(len(bigger) - 1)
		for j := range uint64(len(r.ring)) {
			bigger[(r.acked+j)&mask] = r.ring[(r.acked+j)&r.mask]
		}
		r.ring, r.mask = bigger, mask
	}
	return r.at(i)
}

func (r *inboundRequest) release() {
	if r.mr != nil {
		r.mr.Unhold()
	}
	r.mr, r.mem[0] = nil, nil
}

// recvWQE is a posted receive.
type recvWQE struct {
	id     uint64
	flags  WRFlags
	status Status // not Success: it failed
	imm    [ImmLen]byte
	mem    sgl
}

func makeRecvWQEs(n, sge int) []recvWQE {
	w := make([]recvWQE, n)
	makeSGLs(n, sge, func(i int) *sgl { return &w[i].mem })
	return w
}

func (w *recvWQE) load(t *ddp.Table, pd *ddp.PD, stream ddp.StreamID, wr *RecvWR) {
	w.id, w.flags, w.status, w.imm = wr.ID, wr.Flags, Success, [ImmLen]byte{}
	w.mem.resolveSink(t, pd, stream, wr.SGL)
}

func (w *recvWQE) recycle() { w.mem.release() }

// recvQueue is the receive queue of a queue pair: its own ring, or its part of an SRQ, from which each message takes a
// receive when its first segment arrives.
type recvQueue struct {
	own        []recvWQE
	mask       uint32
	depth      uint32
	head, tail uint32
	next       ddp.MSN // message that completes next
	refill     func()  // see Config

	srq   *SRQ
	taken []int32 // by MSN: entry of the SRQ, -1 for none
	count int     // entries taken
}

func (r *recvQueue) init(cfg *Config) {
	n := ringSize(cfg.RecvDepth)
	*r = recvQueue{mask: uint32(n - 1), depth: uint32(cfg.RecvDepth), next: 1, srq: cfg.SRQ,
		refill: cfg.Refill}
	if r.srq == nil {
		r.own = makeRecvWQEs(n, cfg.MaxSGE)
		return
	}
	r.taken = make([]int32, n)
	for i := range r.taken {
		r.taken[i] = -1
	}
}

// len returns how many receives will complete here.
func (r *recvQueue) len() int {
	if r.srq != nil {
		return r.count
	}
	return int(r.tail - r.head)
}

// receiveFor returns the receive for message msn, or the cause why there is none. It takes one from the SRQ if
// necessary.
func (r *recvQueue) receiveFor(msn ddp.MSN) (*recvWQE, ddp.Cause) {
	n := int(r.depth)
	if r.srq == nil {
		n = int(r.tail - r.head)
	}
	i, c := ddp.BufferIndex(msn, r.next, n)
	if c == ddp.CauseNoBuffer && r.srq == nil && r.refill != nil {
		r.refill()
		i, c = ddp.BufferIndex(msn, r.next, int(r.tail-r.head))
	}
	if c != ddp.CauseNone {
		return nil, c
	}
	if r.srq == nil {
		return &r.own[(r.head+uint32(i))&r.mask], ddp.CauseNone
	}
	e := &r.taken[uint32(msn)&r.mask]
	if *e < 0 {
		if *e = r.srq.takeOldest(); *e < 0 {
			return nil, ddp.CauseNoBuffer
		}
		r.count++
	}
	return &r.srq.wqes[*e], ddp.CauseNone
}

// pop removes the receive of the next message. With an SRQ, that message must have taken one. A flush also pops
// receives of an own queue that no message has reached.
func (r *recvQueue) pop() {
	if r.srq == nil {
		r.own[r.head&r.mask].recycle()
		r.head++
	} else {
		e := &r.taken[uint32(r.next)&r.mask]
		r.srq.wqes[*e].recycle()
		r.srq.freeEntry(*e)
		*e = -1
		r.count--
	}
	r.next++
}

// inboundMessage is the untagged message of queue 0 that is being delivered, and the RTR expected before it.
type inboundMessage struct {
	rtrSend    bool // message 1 is an RTR, and not delivered yet
	open       bool // some segments of the next message are delivered
	op         Opcode
	invalidate uint32
	received   uint32
}

// terminator holds the Terminates of both directions.
type terminator struct {
	toSend  bool // own must be sent
	made    bool
	sent    bool
	own     Terminate
	wire    [ddp.UntaggedLen + termPayload]byte
	n       int // bytes of wire
	gotPeer bool
	peer    Terminate
	raw     [termPayload]byte // the Terminate of the peer, as placed
	rawLen  int

	// The segment at fault for err, which the Terminate includes if Fail is called with err.
	err       *ulpdu.Error
	faultHead [ddp.UntaggedLen]byte
	headLen   int
	segLen    int
	read      ReadRequest
	hasRead   bool
}
