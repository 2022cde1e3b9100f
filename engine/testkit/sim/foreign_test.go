package sim

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// foreigner is a Path that treats frames as foreign peers, middleboxes and attackers do, until the faults stop.
type foreigner struct {
	Path
	r     *rand.Rand
	until tick.Time
	kinds foreignKinds
	old   [][]byte
	news  *hearsay

	replies [][]byte // frames that Reply returns, for the sender of a frame
}

// foreignKinds are the kinds of frames that a foreigner sends.
type foreignKinds struct {
	fragments bool // IP fragments, in any order
	shrink    bool // announced windows become smaller, even smaller than earlier ones
	lies      bool // acknowledged bytes that never arrived (SACK reneging)
	urgent    bool // the URG bit
	replay    bool // replays of old frames
	icmp      bool // ICMP errors about sent packets, in a router's name
	spoil     bool // invalid headers
	forge     bool // forged FIN, RST and acknowledgements of the peer
}

// hearsay has the highest sequence number of each sender, by its ports. Both directions of a path share it.
type hearsay map[[2]uint16]seq.Num

// foreign draws which kinds of frames the foreigners on the paths send.
func (w *wide) foreign() {
	news := hearsay{}
	for i, h := range w.hosts {
		name := h.Name()
		k := foreignKinds{}
		for _, f := range []struct {
			name string
			on   *bool
			n    int // the feature is in one of n scenarios
		}{
			{"fragments of ", &k.fragments, 6}, {"shrinking windows of ", &k.shrink, 6},
			{"lying SACKs of ", &k.lies, 6}, {"URG of ", &k.urgent, 8},
			{"replays of ", &k.replay, 5}, {"forgeries of ", &k.forge, 5},
			{"ICMP of ", &k.icmp, 10}, {"malformed headers of ", &k.spoil, 10},
		} {
			w.draws(f.name + name)
			*f.on = w.one(f.n) && !w.off(f.name+name)
		}
		if k == (foreignKinds{}) {
			continue
		}
		w.say("foreign %s: %+v", name, k)
		w.mangled = true
		if k.icmp { // a hard error ends a dial, and ICMP "packet too big" is believed if nothing got through
			w.severe, w.cuts, w.judge.cuts = true, true, true
		}
		w.judge.cuts = w.judge.cuts || k.shrink // a record that no longer fits the window is cut
		h.cfg.Up = &foreigner{Path: h.cfg.Up, r: rand.New(rand.NewPCG(w.seed, uint64(i)+40)),
			until: Epoch.Add(w.until), kinds: k, news: &news}
	}
	if w.mangled { // a lie needs the numbers of both directions
		for _, h := range w.hosts {
			if f, ok := h.cfg.Up.(*foreigner); !ok || f.news == nil {
				h.cfg.Up = &foreigner{Path: h.cfg.Up, r: rand.New(rand.NewPCG(w.seed, 99)),
					until: Epoch.Add(w.until), news: &news}
			}
		}
	}
}

// Push implements Path.
func (f *foreigner) Push(frame []byte, now tick.Time) {
	if now >= f.until {
		f.Path.Push(frame, now)
		return
	}
	at, t := tcpOf(frame)
	if at < 0 {
		f.Path.Push(frame, now)
		return
	}
	b := bytes.Clone(frame)
	f.note(b, at, &t)
	if f.change(b, at, &t) {
		repair(b, false)
	}
	if f.kinds.fragments && f.r.IntN(3) == 0 {
		for _, p := range f.fragments(b) {
			f.Path.Push(p, now)
		}
	} else {
		f.Path.Push(b, now)
	}
	if f.kinds.replay {
		if f.old = append(f.old, bytes.Clone(frame)); len(f.old) > 200 {
			f.old = f.old[1:]
		}
		if f.r.IntN(20) == 0 {
			f.Path.Push(f.old[f.r.IntN(len(f.old))], now)
		}
	}
	if f.kinds.icmp && f.r.IntN(20) == 0 {
		f.replies = append(f.replies, f.icmpAbout(frame))
	}
	if f.kinds.spoil && f.r.IntN(20) == 0 {
		f.Path.Push(f.spoiled(b, at), now)
	}
	if f.kinds.forge && t.Flags&wire.SYN == 0 && f.r.IntN(20) == 0 {
		f.Path.Push(f.forgery(b, at), now)
	}
}

// note records the highest sequence number of a segment's sender.
func (f *foreigner) note(b []byte, at int, t *wire.Header) {
	key := [2]uint16{t.SrcPort, t.DstPort}
	end := t.Seq.Add(len(b) - at - int(b[at+12]>>4)*4)
	if last, ok := (*f.news)[key]; !ok || last.Less(end) || t.Flags&wire.SYN != 0 {
		(*f.news)[key] = end
	}
}

// change modifies the TCP header at offset at, and reports whether it did.
func (f *foreigner) change(b []byte, at int, t *wire.Header) (changed bool) {
	if f.kinds.shrink && t.Flags&wire.SYN == 0 && f.r.IntN(4) == 0 {
		binary.BigEndian.PutUint16(b[at+14:], t.Window>>f.r.IntN(4))
		changed = true
	}
	if f.kinds.urgent && f.r.IntN(10) == 0 {
		b[at+13] |= 0x20
		binary.BigEndian.PutUint16(b[at+18:], uint16(f.r.IntN(3000)))
		changed = true
	}
	if f.kinds.lies && f.r.IntN(3) == 0 {
		changed = f.lie(b[at+20:at+int(b[at+12]>>4)*4], t) || changed
	}
	return changed
}

// lie extends the first block of a SACK option to the last byte that the other side has sent.
func (f *foreigner) lie(opt []byte, t *wire.Header) bool {
	end, ok := (*f.news)[[2]uint16{t.DstPort, t.SrcPort}]
	for ok && len(opt) >= 2 && opt[0] != 0 {
		n := int(opt[1])
		if opt[0] == 1 {
			n = 1
		}
		if n < 1 || n > len(opt) {
			return false
		}
		if opt[0] == 5 && n >= 10 {
			if seq.Num(binary.BigEndian.Uint32(opt[6:])).Less(end) {
				binary.BigEndian.PutUint32(opt[6:], uint32(end))
				return true
			}
			return false
		}
		opt = opt[n:]
	}
	return false
}

// forgery is a segment that the sender of b cannot have sent: its sequence or acknowledgement number is far off.
func (f *foreigner) forgery(b []byte, at int) []byte {
	g := bytes.Clone(b[:at+int(b[at+12]>>4)*4]) // without its payload
	switch f.r.IntN(3) {
	case 0:
		g[at+13] = byte(wire.RST)
		shift(g, at, 1<<30, 0)
	case 1:
		g[at+13] = byte(wire.FIN | wire.ACK)
		shift(g, at, 1<<29, 0)
	default:
		g[at+13] = byte(wire.ACK)
		shift(g, at, 0, 1<<28)
	}
	var e ip.Ethernet
	off, _ := e.Decode(g)
	if n := len(g) - off; g[off]>>4 == 4 {
		binary.BigEndian.PutUint16(g[off+2:], uint16(n))
	} else {
		binary.BigEndian.PutUint16(g[off+4:], uint16(n-ip.Len6))
	}
	repair(g, false)
	return g
}

// fragments splits a datagram into at most four fragments, in any order.
func (f *foreigner) fragments(frame []byte) (list [][]byte) {
	var e ip.Ethernet
	off, _ := e.Decode(frame)
	b, v6 := frame[off:], frame[off]>>4 == 6
	head, extra := ip.Len4, 0
	if v6 {
		head, extra = ip.Len6, 8
	}
	payload := b[head:]
	id := f.r.Uint32()
	for at := 0; at < len(payload); {
		n := len(payload) - at
		if len(list) < 3 && n > 16 {
			n = 8 * (1 + f.r.IntN(n/8))
		}
		n = min(n, len(payload)-at)
		p := append(append([]byte(nil), frame[:off+head]...), make([]byte, extra)...)
		last := at+n == len(payload)
		h := p[off:]
		if v6 {
			binary.BigEndian.PutUint16(h[4:], uint16(8+n))
			h[40], h[6] = h[6], 44
			word := uint16(at)
			if !last {
				word |= 1
			}
			binary.BigEndian.PutUint16(h[42:], word)
			binary.BigEndian.PutUint32(h[44:], id)
		} else {
			binary.BigEndian.PutUint16(h[2:], uint16(ip.Len4+n))
			binary.BigEndian.PutUint16(h[4:], uint16(id))
			word := uint16(at / 8)
			if !last {
				word |= 1 << 13
			}
			binary.BigEndian.PutUint16(h[6:], word)
			h[10], h[11] = 0, 0
			binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ip.Len4], 0)))
		}
		list = append(list, append(p, payload[at:at+n]...))
		at += n
	}
	f.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
