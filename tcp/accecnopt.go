package tcp

import "xwarp/tcp/wire"

// optionSent is what AccECN options have reported to the peer.
type optionSent struct {
	counters [3]uint32 // of ECT(0), CE, ECT(1)
	options  int
}

const (
	// pathTestOptions is the number of options at the start of a connection that are sent even if no counter changed.
	// They show whether the path passes the option (RFC 9768, 3.2.3.2.1).
	pathTestOptions = 3
	// optionInterval is the increase of a counter, in bytes, from which it is reported even in place of a SACK block or
	// in a segment of its own. RFC 9768, 3.2.3.3 asks for each counter once in 2^22 bytes, of the 2^24 that it can
	// represent.
	optionInterval = 1 << 21
)

// counters returns the counters of the option, in the order of AccECN0.
func (a *accECN) counters() [3]uint32 { return [3]uint32{a.e0b, a.ceb, a.e1b} }

// hasNews reports whether a counter changed since the last option.
func (a *accECN) hasNews() bool { return a.counters() != a.sent.counters }

// isUrgent reports whether the option takes precedence over the third SACK block, and needs a pure ACK if a segment
// with data has no room for it. It is urgent when the CE counter changed, or another one by optionInterval.
func (a *accECN) isUrgent() bool {
	s := &a.sent.counters
	return a.ceb != s[1] || a.e0b-s[0] >= optionInterval || a.e1b-s[2] >= optionInterval
}

// addOption adds the option to a segment that has room for room more bytes of options, if a counter changed since the
// last option or the path is still tested. It adds all three counters if they fit, otherwise CE and the other one that
// changed. It adds none if a counter that changed would be missing (RFC 9768, 3.2.3.3). An urgent option may replace
// SACK blocks after the second.
func (a *accECN) addOption(out *Out, room int) {
	if !a.hasNews() && a.sent.options >= pathTestOptions {
		return
	}
	o := &out.Opt
	room = min(room, wire.MaxOptionsLen-o.Len())
	if a.isUrgent() && o.Present&wire.HasSACK != 0 {
		for room < wire.AccECNLen(2) && o.NSACK > 2 {
			room += wire.SACKLen(int(o.NSACK)) - wire.SACKLen(int(o.NSACK)-1)
			o.NSACK--
		}
	}
	switch s := &a.sent.counters; {
	case room >= wire.AccECNLen(3):
		a.option(o, wire.HasAccECN0, 3)
	case room < wire.AccECNLen(2):
	case a.e1b == s[2]:
		a.option(o, wire.HasAccECN0, 2)
	case a.e0b == s[0]:
		a.option(o, wire.HasAccECN1, 2)
	}
}

// option adds the option with the first n counters in the given order, wire.HasAccECN0 or wire.HasAccECN1.
func (a *accECN) option(o *wire.Options, order wire.OptSet, n uint8) {
	o.Present |= order
	o.NAccECN = n
	a.sent.counters = a.counters()
	for i, v := range a.sent.counters {
		if order == wire.HasAccECN1 {
			i = 2 - i
		}
		o.AccECN[i] = v & 0xffffff
	}
	a.sent.options++
}
