package loss

import (
	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Sender is the send side of one connection. Its only pointer is the ring of records, which Init reuses. It is not safe
// for concurrent use.
type Sender struct {
	una, nxt seq.Num
	mss      int
	state    State
	mode     Mode
	q        ring
	cc       cc.Controller
	rtt      estimator
	rack     rack
	tlp      tlp
	timers   timers
	prr      prr
	undo     undo
	frto     frto
	ev       event
	partial  partialResend
	round    round
	pace     pace

	recover       seq.Num // recovery ends when Una reaches it (RFC 6675's RecoveryPoint)
	beyond        seq.Num // end of the last record after recover that was lost during this recovery
	reduced       tick.Time
	lossMark      uint32    // RFC 6675: first record not judged yet; see advanceMark
	above         int       // selectively acknowledged bytes from lossMark on
	aboveN        int       // records, likewise
	rescue        seq.Num   // RFC 6675: a rescue retransmission is allowed once Una is here (RescueRxt)
	dups          int       // duplicate acknowledgements counted (NoSACK)
	fack          seq.Num   // end of the last byte known to have arrived; without SACK, an estimate
	forcedResends int       // records that may be retransmitted regardless of the window
	mtuProbe      seq.Range // a path MTU probe in flight
	lastSent      tick.Time
	timedOut      tick.Time
	cfg           Config
	count         Counters
}

// partialResend is the progress of retransmitting a record in parts, because it is larger than the MSS.
type partialResend struct {
	on   bool
	id   uint32
	from seq.Num
}

// round is one round trip of the window. It ends when all bytes in flight at its start are acknowledged.
type round struct {
	end        seq.Num
	limited    bool // the window limited the sender in this round
	wasLimited bool // or in the previous round
	appLimited bool
	begun      tick.Time
	delivered  int // bytes delivered in this round
	rate       int // bytes per second in the last round
}

// pace delays new segments to the pacing rate.
type pace struct {
	next    tick.Time // earliest time of the next new segment
	blocked bool
}

// Init prepares s for data that begins at start: the number after the SYN.
func (s *Sender) Init(cfg *Config, start seq.Num, now tick.Time) {
	q := s.q
	q.reset()
	*s = Sender{cfg: *cfg, una: start, nxt: start, q: q, mode: cfg.Mode, mss: max(cfg.CC.MSS, 1),
		fack: start, recover: start.Add(-1), reduced: now, lastSent: now}
	s.cc.Init(&cfg.CC, now)
	s.rtt.init(cfg, now)
	s.rack.init()
	s.timers.init()
	s.cfg.MaxAckDelay = orDefault(cfg.MaxAckDelay, DefaultMaxAckDelay)
	s.round = round{end: start, begun: now}
}

func orDefault(d, def tick.Duration) tick.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// SetHandshakeRTT sets the round trip of the SYN. With retransmitted it records only that the SYN was lost (RFC 6298,
// 5.7; RFC 5681, 3.1).
func (s *Sender) SetHandshakeRTT(rtt tick.Duration, retransmitted bool) {
	if retransmitted {
		s.rtt.rto = max(s.rtt.rto, min(handshakeLostRTO, s.rtt.max))
		s.cc.LoseSYN()
		return
	}
	s.rtt.sample(rtt, s.una, s.nxt)
}

// SetMSS changes the effective MSS. Records keep their boundaries. When the MSS falls, records that are too long are
// marked lost without a congestion reaction, and the caller retransmits them in parts.
func (s *Sender) SetMSS(mss int, now tick.Time) {
	mss = max(mss, 1)
	fell := mss < s.mss
	s.mss = mss
	s.cc.SetMSS(mss)
	if !fell {
		return
	}
	l := s.q.list[inFlight]
	id := l.first
	for range l.n {
		r := s.q.at(id)
		next := r.next
		if int(r.size) > mss && (r.kind != FIN || int(r.size) > mss+1) {
			s.markLost(id)
		}
		id = next
	}
	if s.lostRecords() > 0 && s.state < Recovery {
		s.state = Loss
		s.recover, s.beyond = s.nxt, s.nxt
		s.undo.on = false
		s.frto.step = frtoOff
		s.tlp.cancel()
	}
	if s.frto.step >= frtoNew && s.lostRecords() > 0 {
		s.frto.step = frtoOff // F-RTO retransmits nothing, but the long records must be retransmitted
	}
	s.armTimers(now)
}

// Una returns the first number not acknowledged.
func (s *Sender) Una() seq.Num { return s.una }

// Outstanding returns the bytes between Una and Nxt, a FIN counting one.
func (s *Sender) Outstanding() int { return s.nxt.Diff(s.una) }

// Pipe returns the estimated bytes in the network: those neither acknowledged, cumulatively or selectively, nor marked
// lost since their last transmission.
func (s *Sender) Pipe() int {
	return s.q.list[inFlight].bytes - s.dupBytes()
}

// dupBytes returns the bytes that the duplicate acknowledgements represent. It is unknown which records arrived.
func (s *Sender) dupBytes() int {
	if s.dups == 0 {
		return 0
	}
	l := &s.q.list[inFlight]
	return l.bytes / max(l.n, 1) * min(s.dups, l.n)
}

// Head returns the first record not acknowledged.
func (s *Sender) Head() (Tx, bool) {
	if s.q.len() == 0 {
		return Tx{}, false
	}
	r := s.q.at(s.q.head)
	return Tx{Range: r.span(), Kind: r.kind}, true
}

func (s *Sender) lostRecords() int { return s.q.list[lost].n + s.q.list[lostAgain].n }

// Permit returns the bytes of new data that may be sent now: 0, or at least one MSS. After each non-zero result one
// segment of at most one MSS may be sent. In recovery, or when nothing is in the network, the window may be exceeded by
// less than one MSS: otherwise a window below one record would stall. A tail loss probe and the new segments of F-RTO
// need no room in the window.
func (s *Sender) Permit(now tick.Time) int {
	if s.q.len() >= maxRecords {
		return 0
	}
	if s.tlp.want == tlpNew || s.frto.step == frtoNew {
		return s.mss
	}
	if s.q.len() == 0 {
		s.restartIfIdle(now)
	}
	pipe := s.Pipe()
	room := s.cc.Cwnd() - pipe
	if room < s.mss {
		if pipe > 0 && (room <= 0 || s.state != Recovery && s.state != CWR) {
			return 0
		}
		room = s.mss
	}
	if s.cfg.Pacing && s.pace.next > now {
		s.pace.blocked = true
		return 0
	}
	return room
}

// restartIfIdle reduces the window after an idle time, once for each idle period.
func (s *Sender) restartIfIdle(now tick.Time) {
	if d := now.Sub(s.lastSent); d > s.rtt.rto {
		s.cc.OnIdle(d, s.rtt.rto)
		s.lastSent = now
	}
}

// Sent records the new segment r as one record. r begins at Nxt; otherwise Sent does nothing. appLimited reports that
// there is no more data to send.
func (s *Sender) Sent(r seq.Range, k Kind, appLimited bool, now tick.Time) {
	n := r.End.Diff(r.Start)
	if n <= 0 || r.Start != s.nxt || s.q.len() >= maxRecords {
		return
	}
	// Segments sent at one time have one deadline. The first arms it; the second may change it, because PTO allows for
	// a delayed ACK while one segment is in flight (RFC 8985, 7.2).
	armed := s.lastSent == now && s.q.len() > 1 && s.state <= Disorder && s.tlp.want == tlpNone
	s.lastSent = now
	s.prr.out += n
	if s.frto.step == frtoNew {
		s.frto.onSent(r.End)
	}
	s.q.push(r.Start, n, k, now)
	s.nxt = r.End
	s.count.Sent++
	s.noteLimit(appLimited)
	if s.cfg.Pacing && s.rtt.srtt() >= pacingQuantum && s.count.Sent > pacingFree {
		s.pace.onSent(n, s.cc.PacingRate(s.rtt.srtt()), s.mss, now)
	}
	if s.tlp.want == tlpNew {
		s.tlp.onSent(s.nxt, 0)
		s.count.Probes++
		s.timers.rto = now.Add(s.timeout())
	}
	if s.timers.rto == tick.Never {
		s.timers.rto = now.Add(s.timeout())
	}
	if !armed {
		s.armTLP(now)
	}
}

// PermitRun returns the number of segments of size bytes that Permit would allow one after another. In rare states it
// returns 0, and the caller must call Permit for each segment.
func (s *Sender) PermitRun(size int, now tick.Time) int {
	room := s.cc.Cwnd() - s.q.list[inFlight].bytes
	paced := s.cfg.Pacing && (s.rtt.srtt() >= pacingQuantum || s.pace.next > now)
	if room < s.mss || !s.Steady() || s.q.len() < 2 || s.lastSent != now || paced {
		return 0
	}
	return min((room-s.mss)/size+1, maxRecords-s.q.len())
}

// SentRun is Sent for n segments of size bytes from Nxt on, which PermitRun allowed.
func (s *Sender) SentRun(size, n int, appLimited bool, now tick.Time) {
	s.prr.out += n * size
	for range n {
		s.q.push(s.nxt, size, Data, now)
		s.nxt = s.nxt.Add(size)
	}
	s.count.Sent += uint64(n)
	s.noteLimit(appLimited)
}

// noteLimit records in round whether the window or the application keeps s from sending more.
func (s *Sender) noteLimit(appLimited bool) {
	if s.cc.Cwnd()-s.q.list[inFlight].bytes < s.mss {
		s.round.limited = true
	} else if appLimited {
		s.round.appLimited = true
	}
}

// TakeBack undoes Sent for the records from sequence number from on: they were not transmitted after all.
func (s *Sender) TakeBack(from seq.Num, now tick.Time) {
	for s.q.len() > 0 && from.LessEq(s.q.at(s.q.tail-1).start) {
		s.prr.out -= int(s.q.at(s.q.tail - 1).size)
		s.q.tail--
		s.q.unlink(s.q.tail)
		s.count.Sent--
	}
	s.nxt = from
	if from.Less(s.mtuProbe.End) {
		s.mtuProbe = seq.Range{}
	}
	if s.tlp.inFlight && from.Less(s.tlp.end) {
		s.tlp.cancel()
	}
	s.armTimers(now)
}

// Steady reports whether only the window and the pacing rate decide about new segments: nothing is lost, no
// tail loss probe is due, no reduction is under way.
func (s *Sender) Steady() bool {
	return s.state <= Disorder && s.tlp.want == tlpNone && s.frto.step == frtoOff &&
		s.dups == 0 && s.lostRecords() == 0
}

// onSent delays the next segment by the time that n bytes take at rate. Unused time is saved up to a burst:
// pacingQuantum, or pacingBurst segments if these take longer. So a fast sender needs one timer for a burst, not one
// for each segment.
func (p *pace) onSent(n, rate, mss int, now tick.Time) {
	gap := func(bytes int) tick.Duration { return tick.Duration(bytes * int(tick.Second) / rate) }
	p.next = max(p.next, now.Add(-max(gap(pacingBurst*mss), pacingQuantum))).Add(gap(n))
}

// NoNewData tells s that Permit allowed a segment, but there is no data or no room in the peer's window. If it returns
// true, the caller calls Retransmit again.
func (s *Sender) NoNewData(now tick.Time) bool {
	switch {
	case s.tlp.want == tlpNew:
		s.tlp.want = tlpLast
		return s.q.len() > 0
	case s.frto.step == frtoNew:
		s.frto.step = frtoOff
		return s.lostRecords() > 0
	case s.mode == SACK && s.state == Recovery:
		return s.rescueRetransmit()
	}
	s.round.appLimited = true
	return false
}

// Retransmit returns the next record to retransmit now, false if there is none. It returns the same record until
// Retransmitted has covered all of it.
func (s *Sender) Retransmit(now tick.Time) (Tx, bool) {
	if s.lostRecords() == 0 && s.tlp.want != tlpLast {
		return Tx{}, false
	}
	return s.retransmit()
}

func (s *Sender) retransmit() (Tx, bool) {
	id, isTLP, ok := s.chooseRetransmit()
	if !ok {
		return Tx{}, false
	}
	r := s.q.at(id)
	tx := Tx{Range: r.span(), Kind: r.kind, TLP: isTLP}
	if s.partial.on && s.partial.id == id {
		tx.Start = seq.Max(tx.Start, s.partial.from)
	}
	return tx, true
}

// chooseRetransmit returns the identifier of the next record to retransmit; ok is false if there is none, or no room in
// the window.
func (s *Sender) chooseRetransmit() (id uint32, isTLP, ok bool) {
	if s.tlp.want == tlpLast {
		if id := s.q.tail - 1; s.q.len() > 0 && s.q.at(id).place == inFlight {
			return id, true, true
		}
		s.tlp.want = tlpNone
	}
	if s.frto.step == frtoNew || s.frto.step == frtoWait {
		return 0, false, false
	}
	l, again := &s.q.list[lost], &s.q.list[lostAgain]
	if l.n == 0 && again.n == 0 {
		return 0, false, false
	}
	// The first in the stream, as in RFC 6675, section 4, NextSeg (1). Records lost again are not in sequence order,
	// but the head always goes first: a peer without buffer space keeps no bytes behind it, so only the head's arrival
	// ends a stall.
	switch head := s.q.at(s.q.head).place; {
	case head == lost || head == lostAgain:
		id = s.q.head
	case l.n == 0 || again.n > 0 && int32(again.first-l.first) < 0:
		id = again.first
	default:
		id = l.first
	}
	if s.forcedResends > 0 {
		return id, false, true
	}
	if s.partial.on && s.partial.id == id {
		return id, false, true
	}
	pipe := s.Pipe()
	return id, false, pipe == 0 || s.cc.Cwnd() > pipe
}

// Retransmitted records the retransmission of r: the range that Retransmit returned, or its first bytes if the MSS fell
// below the record.
func (s *Sender) Retransmitted(r seq.Range, now tick.Time) {
	id, isTLP, ok := s.chooseRetransmit()
	if !ok || r.Len() == 0 || !s.q.at(id).span().Covers(r) {
		return
	}
	rec := s.q.at(id)
	s.lastSent = now
	s.count.Retransmitted++
	s.count.RetransmittedBytes += uint64(r.Len())
	s.prr.out += r.Len()
	s.undo.onResent(r.Len(), now)
	if !isTLP {
		s.frto.onResent(rec.end())
	}
	if r.End.Less(rec.end()) {
		s.partial = partialResend{on: true, id: id, from: r.End}
		s.count.Splits++
		return
	}
	s.partial.on = false
	s.q.unlink(id)
	rec.sent, rec.stale = now, false
	if rec.transmissions < 255 {
		rec.transmissions++
	}
	s.q.link(id, inFlight)
	if isTLP {
		s.tlp.onSent(s.nxt, int(rec.size))
		s.count.Probes++
		s.timers.rto = now.Add(s.timeout())
	} else if s.forcedResends > 0 {
		s.forcedResends--
	}
	if id == s.q.head || s.timers.rto == tick.Never {
		s.timers.rto = now.Add(s.timeout())
	}
	s.armTLP(now)
}
