package script

import (
	"fmt"
	"slices"
	"strings"

	"xwarp/tcp/wire"
)

// match compares a segment of the host with the expected one, and returns the difference.
func (p *packet) match(s *seen, f *flow) error {
	var wrong []string
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !p.anyFlags && (s.Flags^p.flags)&^(wire.PSH|p.either) != 0 {
		no("flags")
	}
	if !p.seq.start.matches(s.seq, f.x) {
		no("sequence number")
	}
	if !p.seq.end.matches(s.seq+len(s.payload), f.x) {
		no("length")
	}
	number := func(what string, v value, has bool, n int) {
		if v.set && (!has || !v.matches(n, f.x)) {
			no("%s", what)
		}
	}
	o := &s.Opt
	number("ack", p.ack, s.Flags&wire.ACK != 0, s.ack)
	number("win", p.win, true, s.win)
	number("urg", p.urg, s.Flags&wire.URG != 0, int(s.Urgent))
	number("mss", p.mss, o.Present.Has(wire.HasMSS), int(o.MSS))
	number("ws", p.ws, o.Present.Has(wire.HasWScale), int(o.WScale))
	number("ts", p.ts, o.Present.Has(wire.HasTS), int(o.TSVal))
	number("ecr", p.ecr, o.Present.Has(wire.HasTS), int(o.TSEcr))
	number("uto", p.uto, o.Present.Has(wire.HasUTO), int(o.UTO.Value))
	if p.nots && o.Present.Has(wire.HasTS) {
		no("timestamps")
	}
	if p.sackok && !o.Present.Has(wire.HasSACKPermitted) {
		no("SACK permitted")
	}
	if !p.anySACK && !p.sackMatches(s, f) {
		no("SACK")
	}
	if p.ecn >= 0 && int(s.IP.TOS&3) != p.ecn {
		no("ECN bits of the IP header")
	}
	if p.psh && s.Flags&wire.PSH == 0 || p.nopsh && s.Flags&wire.PSH != 0 {
		no("PSH")
	}
	for i, v := range p.accecn {
		if i >= int(o.NAccECN) || !v.matches(int(o.AccECN[i]), f.x) {
			no("AccECN")
		}
	}
	if p.noaccecn && o.NAccECN > 0 {
		no("AccECN")
	}
	if at, ok := checkPattern(s.payload, s.seq); !ok {
		no("byte %d", at)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("got %v: other %s", s, strings.Join(wrong, ", "))
	}
	if p.save != "" {
		f.x[p.save] = int(o.TSVal)
	}
	return nil
}

func (p *packet) sackMatches(s *seen, f *flow) bool {
	return slices.EqualFunc(p.sack, s.sack, func(a span, b [2]int) bool {
		return a.start.matches(b[0], f.x) && a.end.matches(b[1], f.x)
	})
}

// String writes s as a script would expect it.
func (s *seen) String() string {
	var b strings.Builder
	fl := strings.ReplaceAll(s.Flags.String(), "none", "-")
	fmt.Fprintf(&b, "%s %d", fl, s.seq)
	if n := len(s.payload); n > 0 {
		fmt.Fprintf(&b, ":%d", s.seq+n)
	}
	if s.Flags&wire.ACK != 0 {
		fmt.Fprintf(&b, " ack %d", s.ack)
	}
	fmt.Fprintf(&b, " win %d", s.win)
	o := &s.Opt
	if o.Present.Has(wire.HasMSS) {
		fmt.Fprintf(&b, " mss %d", o.MSS)
	}
	if o.Present.Has(wire.HasWScale) {
		fmt.Fprintf(&b, " ws %d", o.WScale)
	}
	if o.Present.Has(wire.HasSACKPermitted) {
		b.WriteString(" sackok")
	}
	if o.Present.Has(wire.HasTS) {
		fmt.Fprintf(&b, " ts %d ecr %d", o.TSVal, o.TSEcr)
	}
	for i, r := range s.sack {
		if i == 0 {
			b.WriteString(" sack")
		}
		fmt.Fprintf(&b, " %d:%d", r[0], r[1])
	}
	if o.Present&(wire.HasAccECN0|wire.HasAccECN1) != 0 {
		fmt.Fprintf(&b, " accecn %v", o.AccECN[:o.NAccECN])
	}
	if e := s.IP.TOS & 3; e != 0 {
		fmt.Fprintf(&b, " ecn %s", [4]string{"no", "ect1", "ect0", "ce"}[e])
	}
	return b.String()
}
