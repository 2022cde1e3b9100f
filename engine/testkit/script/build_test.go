package script

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

// build creates the IP packet of p, from f's peer. ms is the peer's timestamp clock.
func (f *flow) build(p *packet, e ends, ms int) ([]byte, error) {
	h := wire.Header{SrcPort: f.peer, DstPort: f.host, Flags: p.flags}
	start, err := p.seq.start.at(f.x)
	if err != nil {
		return nil, err
	}
	end, err := p.seq.end.at(f.x)
	if err != nil || end < start || end-start > 1<<16 {
		return nil, fmt.Errorf("sequence numbers %v:%v: %w", p.seq.start, p.seq.end, err)
	}
	h.Seq = f.isn.Add(start)
	if err := f.fill(&h, p, ms); err != nil {
		return nil, err
	}
	tcp := make([]byte, wire.HeaderLen+wire.MaxOptionsLen)
	n := h.Put(tcp)
	if p.hasRaw {
		h.Opt = wire.Options{}
		h.Put(tcp)
		n = wire.HeaderLen + copy(tcp[wire.HeaderLen:], p.raw)
		for n%4 != 0 {
			tcp[n] = 0
			n++
		}
		tcp[12] = tcp[12]&0x0f | byte(n/4)<<4
	}
	from := start
	if p.flags&wire.SYN != 0 {
		from++
	}
	tcp = append(tcp[:n:n], pattern(from, end-start)...)
	return p.finish(tcp, e)
}

// finish applies the faults of p, and fills in checksums and the IP header.
func (p *packet) finish(tcp []byte, e ends) ([]byte, error) {
	if p.doff.set {
		tcp[12] = tcp[12]&0x0f | byte(p.doff.lo)<<4
	}
	if p.reserved {
		tcp[12] |= 0x0e
	}
	if p.cut.set {
		tcp = tcp[:min(p.cut.lo, len(tcp))]
	}
	src := e.peer
	if p.src.IsValid() {
		src = p.src
	}
	h := header(src, e.host, ip.ProtoTCP, len(tcp))
	h.TOS = uint8(max(0, p.ecn))
	if len(tcp) >= 18 {
		binary.BigEndian.PutUint16(tcp[16:], 0)
		sum := wire.Finish(wire.Sum(tcp, h.PseudoSum(len(tcp))))
		switch {
		case p.badsum:
			sum ^= 0x5555
		case p.zerosum:
			sum = 0
		}
		binary.BigEndian.PutUint16(tcp[16:], sum)
	}
	b := packetOf(&h, tcp)
	if p.badip && !h.V6 {
		b[10] ^= 0x55
	}
	return b, nil
}

func header(src, dst netip.Addr, proto uint8, n int) ip.Header {
	return ip.Header{Src: addr(src), Dst: addr(dst), V6: src.Is6(), Proto: proto, TTL: 64, DF: true,
		PayloadLen: n}
}

func packetOf(h *ip.Header, payload []byte) []byte {
	b := make([]byte, h.Len()+len(payload))
	n := h.Put(b)
	copy(b[n:], payload)
	return b
}

// fill sets acknowledgement, window and options. Fields that p does not name get the values that the connection
// implies.
func (f *flow) fill(h *wire.Header, p *packet, ms int) error {
	var err error
	num := func(v value) int {
		n, e := v.at(f.x)
		if e != nil && err == nil {
			err = e
		}
		return n
	}
	if p.flags&wire.ACK != 0 {
		h.Ack = f.hostISN.Add(num(p.ack))
	}
	if p.win.set {
		f.win = num(p.win)
	}
	h.Window = uint16(min(f.win, 65535))
	if p.flags&wire.SYN != 0 {
		f.shifts[0], f.stamps[0] = p.ws.set, p.ts.set
		f.peerShift = uint8(p.ws.lo)
	} else if f.scaled() {
		h.Window = uint16(min(f.win>>min(f.peerShift, 14), 65535))
	}
	if p.urg.set {
		h.Urgent = uint16(num(p.urg))
	}
	o := &h.Opt
	if p.mss.set {
		o.Present |= wire.HasMSS
		o.MSS = uint16(num(p.mss))
	}
	if p.ws.set {
		o.Present |= wire.HasWScale
		o.WScale = uint8(num(p.ws))
	}
	if p.sackok {
		o.Present |= wire.HasSACKPermitted
	}
	if p.ts.set || p.ecr.set || f.stamping() && !p.nots && p.flags&(wire.SYN|wire.RST) == 0 {
		o.Present |= wire.HasTS
		o.TSVal, o.TSEcr = uint32(1000+ms), f.lastTS
		if p.ts.set {
			o.TSVal = uint32(num(p.ts))
		}
		if p.ecr.set {
			o.TSEcr = uint32(num(p.ecr))
		}
		if p.flags&wire.ACK == 0 && !p.ecr.set {
			o.TSEcr = 0
		}
	}
	if p.uto.set {
		o.Present |= wire.HasUTO
		o.UTO = wire.UserTimeout{Value: uint16(num(p.uto))}
	}
	if len(p.accecn) > 0 {
		o.Present |= wire.HasAccECN0
		o.NAccECN = 3
		for i, v := range p.accecn {
			o.AccECN[i] = uint32(num(v))
		}
	}
	for i, s := range p.sack[:min(len(p.sack), len(o.SACK))] {
		o.Present |= wire.HasSACK
		o.SACK[i] = seq.Range{Start: f.hostISN.Add(num(s.start)), End: f.hostISN.Add(num(s.end))}
		o.NSACK = uint8(i + 1)
	}
	return err
}

// icmpTypes are type and code for IPv4 and IPv6.
var icmpTypes = map[string][2][2]byte{
	"net": {{3, 0}, {1, 0}}, "host": {{3, 1}, {1, 3}}, "proto": {{3, 2}, {4, 1}},
	"port": {{3, 3}, {1, 4}}, "toobig": {{3, 4}, {2, 0}},
	"prohibited": {{3, 13}, {1, 1}}, "ttl": {{11, 0}, {3, 0}}, "quench": {{4, 0}, {3, 0}},
}

// icmp creates an ICMP error of a router about the segment that starts at relative number at.
func (f *flow) icmp(kind string, at, mtu int, e ends) ([]byte, error) {
	t, ok := icmpTypes[kind]
	if !ok {
		return nil, fmt.Errorf("%q is not an ICMP error", kind)
	}
	h := wire.Header{SrcPort: f.host, DstPort: f.peer, Seq: f.hostISN.Add(at), Ack: f.isn,
		Flags: wire.ACK}
	tcp := make([]byte, wire.HeaderLen)
	h.Put(tcp)
	q := header(e.host, e.peer, ip.ProtoTCP, 1400)
	quoted := packetOf(&q, tcp)
	v6 := e.host.Is6()
	i, proto := 0, uint8(ip.ProtoICMP)
	if v6 {
		i, proto = 1, ip.ProtoICMPv6
	}
	b := append([]byte{t[i][0], t[i][1], 0, 0, 0, 0, 0, 0}, quoted...)
	binary.BigEndian.PutUint32(b[4:], uint32(mtu))
	out := header(e.peer, e.host, proto, len(b))
	acc := uint64(0)
	if v6 {
		acc = out.PseudoSum(len(b))
	}
	binary.BigEndian.PutUint16(b[2:], wire.Finish(wire.Sum(b, acc)))
	return packetOf(&out, b), nil
}
