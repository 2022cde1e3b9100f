package stack

import (
	"container/list"
	"fmt"
	"syscall"

	"xwarp/engine/budget"
	"xwarp/engine/tally"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Upper is the user of a connection: a byte stream, or MPA with RDMAP above it. It is called on the thread that owns
// the Stack, and may call the Endpoint. It may also implement tcp.RunSource, CRCUser, Recoverer and Timed.
type Upper interface {
	tcp.Source
	// Attach is the first call. Start may never follow.
	Attach(e *Endpoint)
	// Start reports that the sequence numbers of both streams are known.
	Start(e *Endpoint, snd, rcv seq.Num, now tick.Time)
	// Fill writes the bytes r of the outgoing stream, which Next has frozen, to dst. It may return their wire.Sum.
	Fill(r seq.Range, dst []byte) (sum uint64, summed bool)
	// Acked reports that the peer acknowledged everything before to.
	Acked(to seq.Num)
	// Offer offers n bytes at sequence number at, in order or not. It returns how many bytes from the front were placed
	// or held; the others count as never received. crc is the CRC32C of the n bytes if it is known: see CRCUser.
	Offer(at seq.Num, pieces [][]byte, n int, crc checksum.Known) (kept int)
	// Advance reports that everything before to has arrived.
	Advance(to seq.Num)
	// Space returns the window to announce: how many bytes may arrive after those of the last Advance.
	Space() int
	// Settle is called before and after each round of transmission.
	Settle(now tick.Time)
	// Event reports an event of the connection. tcp.Ended is the last call.
	Event(ev tcp.Events, now tick.Time)
	// Abandon is the last call after a panic from which Recover did not recover. The state of the Upper may be
	// inconsistent.
	Abandon(why error)
}

// CRCUser is an Upper whose frames have a CRC32C. The stack computes it together with the TCP checksum in one pass.
type CRCUser interface {
	// WantsCRC reports whether Offer would use the CRC32C of the n bytes at sequence number at, if they are offered
	// together. It must not change any state: their TCP checksum is not verified yet.
	WantsCRC(at seq.Num, pieces [][]byte, n int) bool
}

// Recoverer is an Upper that uses memory which may disappear.
type Recoverer interface {
	// Recover is called after a panic with v. It returns true if the panic did no harm, so that the connection
	// continues. Bytes being offered count as never received; bytes that Fill could not write were passed to TakeBack,
	// or Break was called.
	Recover(v any) bool
}

// Timed is an Upper with its own timers. Expire runs those that are due; Deadline returns when the next one is.
type Timed interface {
	Expire(now tick.Time)
	Deadline() tick.Time
}

// Endpoint is one connection of a Stack. The worker of the Stack owns it.
type Endpoint struct {
	stack  *Stack
	tuple  tcp.Tuple
	conn   tcp.Conn
	serial uint64 // number of the connection on this stack, in order of creation

	// The upper layer, set by setUpper.
	upper  Upper
	src    tcp.Source    // upper as a tcp.Source
	runs   tcp.RunSource // upper as a tcp.RunSource, or nil if it is not one
	crc    CRCUser       // upper as a CRCUser, or nil if it is not one
	timed  Timed         // upper as a Timed, or nil if it is not one
	rcvEnd seq.Num       // argument of the last Upper.Advance

	// The state of the connection.
	started   bool // Upper.Start was called
	ended     bool // tcp.Ended was reported, or the stack has forgotten it
	abandoned bool
	steered   bool // Config.Steering.AddFlow was called for it

	// Receiving and transmitting frames.
	frame  template
	expect expect
	flow   *Flow // nil if not protected

	// Turns at transmitting.
	class *Class // class in which it waits for its turn
	dirty bool   // it is in Stack.dirty
	visit visit

	// The next hop, see hop.go.
	hop          *hop
	hopIdx       int     // its index in hop.users
	unaAtLastRTO seq.Num // SndUna at the last retransmission timeout; see revalidateHop

	// Of connections that a listener accepted.
	from  *Listener
	young *list.Element  // its element of from.young
	peer  *budget.Charge // nil for connections opened by this host

	// Owned by Stack.timers.
	timerAt  tick.Time
	timerIdx int

	counted tally.Counted[tcp.AllCounters] // already counted in Stack.totals
}

// Connect starts an active open to t.Remote; Event reports the outcome to upper. It fails for local reasons: the table
// is full, the tuple is in use, or the flow cannot be steered.
func (s *Stack) Connect(t tcp.Tuple, cfg *tcp.Config, upper Upper, now tick.Time) (*Endpoint,
	error) {
	return s.connect(t, cfg, upper, tcp.ISN(&s.cfg.Secret, &t, now), now)
}

func (s *Stack) connect(t tcp.Tuple, cfg *tcp.Config, upper Upper, iss seq.Num, now tick.Time) (
	*Endpoint, error) {
	if s.cfg.IPsec != nil {
		s.cfg.IPsec.Prepare(&t)
	}
	e, err := s.newEndpoint(t)
	if err != nil {
		return nil, err
	}
	e.use(upper)
	c := s.connConfig(cfg, &t)
	c.TSOffset = tcp.TSOffset(&s.cfg.Secret, &t)
	e.conn.Init(&c, t.LocalPort, t.RemotePort, iss, now)
	e.limitSegments(now)
	e.setHop(s.hopTo(&t, now), now)
	e.conn.Connect(now)
	s.mark(e)
	return e, nil
}

// connConfig returns cfg with the values that this stack adds: the budget, the default of keepalive, and the MTUs.
func (s *Stack) connConfig(cfg *tcp.Config, t *tcp.Tuple) tcp.Config {
	c := *cfg
	c.IPv6 = !t.Remote.Is4()
	c.Budget = &s.budget
	if c.KeepaliveIdle == 0 {
		c.KeepaliveIdle = KeepaliveIdle
	}
	if c.MTU == 0 || c.MTU > s.cfg.MTU {
		c.MTU = s.cfg.MTU
	}
	f := s.flowOf(t)
	c.MTU = f.innerMTU(c.MTU, c.IPv6)
	if c.PathMTU != 0 {
		c.PathMTU = f.innerMTU(c.PathMTU, c.IPv6)
	}
	if f != nil {
		c.Encapsulation = f.Shape.MaxOverhead(c.IPv6)
	}
	return c
}

// newEndpoint creates a connection without an upper layer.
func (s *Stack) newEndpoint(t tcp.Tuple) (*Endpoint, error) {
	if len(s.conns) >= MaxEndpoints {
		return nil, ErrTooMany
	}
	if _, taken := s.conns[t]; taken {
		return nil, tcp.ErrTupleInUse
	}
	s.begun++
	e := &Endpoint{stack: s, tuple: t, timerAt: tick.Never, serial: s.begun,
		class: &s.common}
	if s.cfg.Steering != nil {
		if err := s.cfg.Steering.AddFlow(&t); err != nil {
			return nil, err
		}
		e.steered = true
	}
	e.frame.init(&s.cfg, &t)
	e.expect.init(&s.cfg, &t, ip.ProtoTCP)
	e.protect(s.flowOf(&t))
	s.conns[t] = e
	return e, nil
}

// use sets the first upper layer of e.
func (e *Endpoint) use(u Upper) {
	e.setUpper(u)
	u.Attach(e)
}

// forget removes e from every table.
func (s *Stack) forget(e *Endpoint, now tick.Time) {
	e.Count()
	e.ended = true
	s.timers.remove(e)
	if s.conns[e.tuple] == e {
		delete(s.conns, e.tuple)
	}
	if s.last == e {
		s.last = nil
	}
	e.setHop(nil, now)
	e.leave(now)
	if e.steered {
		e.steered = false
		s.cfg.Steering.RemoveFlow(&e.tuple)
	}
}

// Tuple returns the addresses and ports of e.
func (e *Endpoint) Tuple() tcp.Tuple { return e.tuple }

// Err returns why e ended, or nil if both sides closed it.
func (e *Endpoint) Err() error {
	switch c := e.conn.Cause(); {
	case c == tcp.CauseClosed:
		return nil
	case (c == tcp.CauseTimeout || c == tcp.CauseKeepalive) && e.Obstacle() != nil:
		return fmt.Errorf("%w; %w", c, e.Obstacle())
	default:
		return c
	}
}

// noSA is the error of a connection whose packets wait for an SA.
type noSA struct{}

func (noSA) Error() string { return "packets wait for an SA: see xwarp status" }

// Unwrap returns EHOSTUNREACH.
func (noSA) Unwrap() error { return syscall.EHOSTUNREACH }

// Obstacle returns why packets of e cannot be sent now: no SA, or the error of the next hop or route. It returns nil if
// nothing is known to prevent it.
func (e *Endpoint) Obstacle() error {
	switch {
	case e.flow != nil && e.flow.out == nil:
		return noSA{}
	case e.hop != nil && e.hop.err != nil:
		return e.hop.err
	}
	return nil
}

// Conn returns the TCP connection, for its state and counters. Call Schedule after changing anything.
func (e *Endpoint) Conn() *tcp.Conn { return &e.conn }

// Upper returns the layer set by Connect or the listener.
func (e *Endpoint) Upper() Upper { return e.upper }

// SetUpper replaces the upper layer of a started connection. It does not call u.Start: unless u was started before, the
// caller does, with the sequence numbers at which u begins to send and to receive.
func (e *Endpoint) SetUpper(u Upper) { e.setUpper(u); e.stack.mark(e) }

func (e *Endpoint) setUpper(u Upper) {
	e.upper, e.src = u, u
	e.runs, _ = u.(tcp.RunSource)
	e.crc, _ = u.(CRCUser)
	e.timed, _ = u.(Timed)
}

// SetClass makes e take its turns at transmitting in the class of its owner.
func (e *Endpoint) SetClass(c *Class) { e.class = c }

// SetTOS sets the DSCP, in the upper six bits, of the packets that e sends from now on. The ECN bits stay TCP's.
func (e *Endpoint) SetTOS(tos uint8) { e.frame.tos = tos &^ 3 }

// Schedule makes e transmit at the next Step. The upper layer calls it when it has bytes, room or a decision.
func (e *Endpoint) Schedule() { e.stack.mark(e) }

// Shutdown sends FIN once the upper layer has nothing left.
func (e *Endpoint) Shutdown(now tick.Time) { e.conn.Shutdown(now); e.stack.mark(e) }

// Abort ends the connection with RST.
func (e *Endpoint) Abort(now tick.Time) { e.conn.Abort(now); e.stack.mark(e) }

// Break reports that Upper.Fill cannot write the requested bytes. The connection is reset.
func (e *Endpoint) Break() { e.Abort(e.stack.now) }

// TakeBack reports, after a panic in Upper.Fill, that the bytes at from and later are not available. They were not
// sent. TCP gets others in their place from Upper.Next.
func (e *Endpoint) TakeBack(from seq.Num) { e.conn.TakeBack(from, e.stack.now) }

// receive passes the segment s with the given payload, and its CRC32C if it is known, to TCP and the upper layer.
func (e *Endpoint) receive(s *tcp.Segment, pieces [][]byte, crc checksum.Known, now tick.Time) {
	o := e.conn.Input(s, now)
	if !e.started {
		e.start(now)
	}
	if o.N > 0 && e.started && e.conn.ClearAcked() { // first: the payload may end the stream
		e.upper.Acked(e.conn.SndUna())
	}
	if o.N > 0 {
		crc.Valid = crc.Valid && o.R[0].Len() == s.Len
		e.offer(o, s.Start(), pieces, crc)
	}
	e.conn.Finish(now)
	if o.N > 0 {
		e.advance()
	}
	e.stack.mark(e)
}

// advance reports to the upper layer how far bytes have arrived in order, if that has changed.
func (e *Endpoint) advance() {
	if end := e.conn.RcvEnd(); end != e.rcvEnd {
		e.rcvEnd = end
		e.upper.Advance(end)
	}
}

// offer passes the bytes of o to the upper layer. pieces begin at sequence number at. The caller makes crc invalid
// unless o has all bytes of pieces.
func (e *Endpoint) offer(o *tcp.Offer, at seq.Num, pieces [][]byte, crc checksum.Known) {
	for _, r := range o.R[:o.N] {
		pieces, at = cut(pieces, r.Start.Diff(at)), r.Start
		kept := e.upper.Offer(at, pieces, r.Len(), crc)
		e.conn.Keep(seq.Of(at, kept))
		if kept < r.Len() {
			break
		}
	}
}

// cut drops n bytes from the front of pieces, in place.
func cut(pieces [][]byte, n int) [][]byte {
	for n > 0 && len(pieces) > 0 {
		if n < len(pieces[0]) {
			pieces[0] = pieces[0][n:]
			break
		}
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	return pieces
}

// start reports the beginning of both streams to the upper layer, once the peer's SYN was received.
func (e *Endpoint) start(now tick.Time) {
	switch e.conn.State() {
	case tcp.Closed, tcp.SynSent:
		return
	}
	e.started = true
	snd, rcv := e.conn.DataStart()
	e.rcvEnd = rcv
	e.upper.Start(e, snd, rcv, now)
}

// output reports events to the upper layer, sends the segments that may be sent, and returns the number of frames.
// After the frames of all connections have been sent, tidy does the rest.
func (e *Endpoint) output(now tick.Time) int {
	e.events(now)
	if e.started {
		e.upper.Settle(now)
		e.conn.SetRcvSpace(e.upper.Space(), now)
	}
	if e.conn.PushWaits() { // Fetch costs a ping-pong 1 %: call it only if it matters
		e.conn.AckPushed(now, !e.conn.AnswersPush() && !e.stack.Fetch())
	}
	n := 0
	if e.hop.ready(e.stack) && e.stack.ready(e.flow) {
		n = e.burst(now)
	}
	e.visit = max(e.visit, txPolled)
	if n > 0 {
		e.visit = txSent
	}
	return n
}

// burst sends the segments that may be sent and returns the number of frames.
func (e *Endpoint) burst(now tick.Time) (n int) {
	var src tcp.Source
	if e.started {
		src = e.src
	}
	s := e.stack
	e.frame.end = 0 // end the run of headers: the MAC address of the hop may have changed
	if s.blocks && e.flow == nil {
		return e.burstBlocks(src, now)
	}
	for ; n < MaxFramesPerVisit; n++ {
		buf, ok := s.allocTx()
		if !ok {
			break
		}
		s.slot, s.filling = buf.Slot(), true
		if !e.conn.Poll(now, src, &s.out) {
			s.filling = false
			s.port.CancelTx(buf)
			return n
		}
		e.emit(buf, &s.out)
		s.filling = false
		if e.flow != nil && e.flow.out == nil { // the SA reached its limit: SetOut continues
			return n + 1
		}
	}
	s.mark(e)
	return n
}

// emit builds the frame of o in the slot buf and sends it.
func (e *Endpoint) emit(buf ring.TxBuf, o *tcp.Out) {
	s := e.stack
	if e.flow != nil {
		e.emitSealed(buf, o)
		return
	}
	at := e.frame.build(buf.Data, o, e.hop.mac)
	sum := e.fill(buf.Data[at:], o)
	s.put(buf, e.frame.finish(buf.Data, at, o, sum))
}

// fill writes the payload of o to the front of b and returns its sum.
func (e *Endpoint) fill(b []byte, o *tcp.Out) uint64 {
	p := o.Payload
	if p.Empty() {
		return 0
	}
	b = b[:p.Len()]
	e.stack.stats.TxPayload += uint64(len(b))
	sum, summed := e.upper.Fill(p, b)
	if !summed {
		sum = wire.Sum(b, 0)
	}
	return sum
}

// put passes the frame of n bytes in buf to the port.
func (s *Stack) put(buf ring.TxBuf, n int) {
	s.stats.TxFrames++
	s.stats.TxBytes += uint64(n)
	s.port.Send(buf, n)
}

// allocTx returns a transmit slot: a free one, or one just completed by the kernel.
func (s *Stack) allocTx() (buf ring.TxBuf, ok bool) {
	if buf, ok = s.port.AllocTx(); !ok {
		buf, ok = s.reclaim()
	}
	return buf, ok
}

func (s *Stack) reclaim() (buf ring.TxBuf, ok bool) {
	if s.port.Reap() > 0 {
		buf, ok = s.port.AllocTx()
	}
	if !ok {
		s.stats.NoSlot++
		s.starved = true
	}
	return buf, ok
}

func (e *Endpoint) events(now tick.Time) {
	ev := e.conn.Events()
	if ev == 0 {
		return
	}
	if !e.started {
		e.start(now)
	}
	if ev&tcp.Acked != 0 && e.started {
		e.upper.Acked(e.conn.SndUna())
	}
	if ev &^= tcp.Acked | tcp.Received; ev != 0 {
		e.upper.Event(ev, now)
	}
	if e.peer != nil && e.conn.State() == tcp.TimeWait {
		e.leave(now) // the peer's limits do not count TIME-WAIT
	}
	if ev&tcp.Ended != 0 && !e.ended {
		e.ended = true
		e.stack.forgetting = append(e.stack.forgetting, e)
	}
}

func (e *Endpoint) deadline() tick.Time {
	d := e.conn.Deadline()
	if e.timed != nil {
		d = min(d, e.timed.Deadline())
	}
	return d
}

func (e *Endpoint) expire(now tick.Time) {
	if e.conn.Deadline() <= now {
		e.conn.Expire(now)
		e.revalidateHop(now)
	}
	if e.timed != nil && e.timed.Deadline() <= now {
		e.timed.Expire(now)
	}
	e.stack.mark(e)
}

// EMSS returns the maximum payload of a segment in bytes.
func (e *Endpoint) EMSS() int { return e.conn.EMSS() }
