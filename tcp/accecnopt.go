package tcp

import "xwarp/tcp/wire"

// optionSent is the state reported to the peer by AccECN options.
type optionSent struct {
	counters [3]uint32 // of ECT(0), CE, ECT(1)
	options  int
}

const (
	// pathTestOptions is the number of options sent whether counters moved or not, from the handshake on: they show
	// whether the path lets the option through (RFC 9768, 3.2.3.2.1).
	pathTestOptions = 3
	// optionInterval is the number of bytes after which a counter is reported even if that takes the room of a SACK
	// block or a segment of its own. RFC 9768, 3.2.3.3 asks for each counter once in 2^22 bytes, of the 2^24 that it
	// can represent.
	optionInterval = 1 << 21
)

// counters returns the counters of the option, in the order of AccECN0.
func (a *accECN) counters() [3]uint32 { return [3]uint32{a.e0b, a.ceb, a.e1b} }

// hasNews reports whether a counter moved since the last option.
func (a *accECN) hasNews() bool { return a.counters() != a.sent.counters }

// isUrgent reports whether the option goes before the third SACK block, and with a segment of its own when a segment
// with data has no room: bytes with CE came, or very many others.
func (a *accECN) isUrgent() bool {
	s := &a.sent.counters
	return a.ceb != s[1] || a.e0b-s[0] >= optionInterval || a.e1b-s[2] >= optionInterval
}

// addOption adds the option to a segment with room for that many more bytes of options, when a counter moved since
// the last one. All three counters go when there is room, else CE and the one beside it that moved. An option without
// one that moved may not be sent (RFC 9768, 3.2.3.3). Without room an urgent one takes the place of SACK blocks
// behind the second.
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

// option adds the option in one of the two orders with the first n counters of it.
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
