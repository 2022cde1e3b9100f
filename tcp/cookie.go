package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// A SYN cookie is an ISS that encodes the state of a half-open connection (RFC 4987, 3.6):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------+-----+-----------------------------------------------+
//	| period  | MSS |   SipHash of addresses, ports, IRS, the rest  |
//	+---------+-----+-----------------------------------------------+
//
// With timestamps, the low bits of TSval hold window scale, SACK and ECN:
//
//	+--------------------------------------------------+---+---+-----+
//	|                timestamp clock                   |ECN|SCK|scale|
//	+--------------------------------------------------+---+---+-----+
const (
	cookiePeriod   = 64 * tick.Second
	cookiePeriods  = 2 // a cookie is valid in its own period and the next one
	cookieLife     = cookiePeriods * cookiePeriod
	cookieTail     = 30 * tick.Second // by then the peer has sent the first segment five times
	cookieNoScale  = 15
	cookieSACKBit  = 1 << 4
	cookieECNBit   = 1 << 5
	cookieTSBits   = 6
	cookieHashMask = 1<<24 - 1
)

// cookieMSS are the MSS values that the three bits encode. A cookie encodes the largest one that does not exceed the
// peer's MSS, or the smallest.
var cookieMSS = [8]uint16{216, 536, 1220, 1300, 1440, 1460, 4312, 8940}

func (l *Listener) cookieHash(t *Tuple, irs seq.Num, period, mss uint32) uint32 {
	use := 2<<62 | uint64(irs)<<16 | uint64(period&31)<<3 | uint64(mss)
	return uint32(t.hash(&l.cfg.Key, use)) & cookieHashMask
}

func period(now tick.Time) uint32 { return uint32(int64(now) / int64(cookiePeriod)) }

// sendCookie answers a SYN without storing state.
func (l *Listener) sendCookie(t *Tuple, s *Segment, now tick.Time, out *Out) {
	peer := uint16(defaultMSS4)
	if l.cfg.Conn.IPv6 {
		peer = defaultMSS6
	}
	if s.Opt.Present&wire.HasMSS != 0 {
		peer = s.Opt.MSS
	}
	idx := 0
	for i, m := range cookieMSS {
		if m <= peer {
			idx = i
		}
	}
	p := period(now)
	e := halfOpen{t: *t, syn: *s}
	e.iss = seq.Num(p&31<<27 | uint32(idx)<<24 | l.cookieHash(t, s.Seq, p, uint32(idx)))
	keep := s.Opt.Present&wire.HasTS != 0 && !l.cfg.Conn.NoTimestamps
	if !keep { // without timestamps these options cannot be encoded
		e.syn.Opt.Present &^= wire.HasWScale | wire.HasSACKPermitted
	}
	e.syn.Flags &^= wire.AE
	if !keep || l.cfg.Conn.ecnAsked(s.Flags) != ECNClassic {
		// There is no bit for RFC 9768. A peer that requests it must not be granted RFC 3168 by a cookie and RFC 9768
		// by a half-open connection (RFC 9768, 3.1.5).
		e.syn.Flags &^= ecnSetup
	}
	c := &l.scratch
	l.buildConn(c, &e, now)
	c.timer.synDue = true
	c.pollSYN(now, out)
	if c.ts.on {
		out.Opt.TSVal = cookieTS(out.Opt.TSVal, c)
	}
	l.cookieUntil = now.Add(cookieLife)
	l.n.CookiesSent++
}

// cookieTS encodes the options of c in the low bits of the timestamp ts. The result is not later than ts.
func cookieTS(ts uint32, c *Conn) uint32 {
	bits := uint32(cookieNoScale)
	if !c.cfg.NoWScale {
		bits = uint32(c.wscale)
	}
	if c.sackOK {
		bits |= cookieSACKBit
	}
	if c.ecn.mode != ECNOff {
		bits |= cookieECNBit
	}
	v := ts>>cookieTSBits<<cookieTSBits | bits
	if int32(v-ts) > 0 {
		v -= 1 << cookieTSBits
	}
	return v
}

// mayFollowCookie reports whether s may be a later segment of a connection that was offered a cookie. The hash covers
// the IRS, which only the first segment reveals. If that segment is lost or overtaken, later ones must not be answered
// with RST, because the peer retransmits the first one: a path whose MTU fell can lose it for many seconds. So s is
// dropped silently. The cost: after a restart of this host, the RST to an old connection whose number looks like a
// cookie is delayed by cookieTail, or until the period ends. To check more than the period would need a second, shorter
// hash, which could be guessed.
func (l *Listener) mayFollowCookie(s *Segment, now tick.Time) bool {
	return now <= l.cookieUntil.Add(cookieTail-cookieLife) && s.Flags&wire.SYN == 0 &&
		(period(now)-uint32(s.Ack-1)>>27)&31 < cookiePeriods
}

// checkCookie restores a half-open connection from s, the ACK that completes its handshake. ok is false if s carries no
// valid cookie.
func (l *Listener) checkCookie(t *Tuple, s *Segment, now tick.Time) (e halfOpen, ok bool) {
	if now > l.cookieUntil || s.Flags&(wire.SYN|wire.RST|wire.ACK) != wire.ACK {
		return e, false
	}
	c := uint32(s.Ack - 1)
	p := period(now)
	age := (p - c>>27) & 31
	idx := c >> 24 & 7
	irs := s.Seq - 1
	if age >= cookiePeriods || c&cookieHashMask != l.cookieHash(t, irs, p-age, idx) {
		return e, false
	}
	e = halfOpen{t: *t, iss: s.Ack - 1, window: min(l.cfg.Conn.RcvSpace, 0xffff), sentAt: now}
	e.syn = Segment{Header: wire.Header{SrcPort: s.SrcPort, DstPort: s.DstPort, Seq: irs,
		Flags: wire.SYN, Window: s.Window}}
	o := &e.syn.Opt
	o.Present, o.MSS = wire.HasMSS, cookieMSS[idx]
	if s.Opt.Present&wire.HasTS != 0 && !l.cfg.Conn.NoTimestamps {
		o.Present |= wire.HasTS
		o.TSVal = s.Opt.TSVal
		echo := s.Opt.TSEcr
		if echo&cookieNoScale != cookieNoScale {
			o.Present |= wire.HasWScale
			o.WScale = uint8(echo & cookieNoScale)
		}
		if echo&cookieSACKBit != 0 {
			o.Present |= wire.HasSACKPermitted
		}
		if echo&cookieECNBit != 0 {
			e.syn.Flags |= wire.ECE | wire.CWR
		}
	}
	return e, true
}
