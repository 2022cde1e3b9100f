package sim

import (
	"fmt"
	"strings"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// Describe returns one line about a frame, for traces.
func Describe(frame []byte) string {
	var e ip.Ethernet
	off, err := e.Decode(frame)
	if err != nil {
		return fmt.Sprintf("%d bytes, no Ethernet: %v", len(frame), err)
	}
	var h ip.Header
	n, err := h.Decode(frame[off:])
	if err != nil {
		return fmt.Sprintf("%d bytes, no IP: %v", len(frame), err)
	}
	payload := frame[off+n:]
	payload = payload[:min(len(payload), h.PayloadLen)]
	if h.Proto != ip.ProtoTCP {
		var m ip.ICMPError
		if err := m.DecodeICMP(&h, payload); err != nil {
			return fmt.Sprintf("%v > %v protocol %d: %v", h.Src, h.Dst, h.Proto, err)
		}
		return fmt.Sprintf("%v > %v ICMP %+v", h.Src, h.Dst, m)
	}
	var t wire.Header
	n, err = t.Decode(payload)
	if err != nil {
		return fmt.Sprintf("%v > %v TCP: %v", h.Src, h.Dst, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v > %v %s len %d", h.Src, h.Dst, t.String(), len(payload)-n)
	if ecn := h.TOS & 3; ecn != 0 {
		fmt.Fprintf(&b, " ecn %d", ecn)
	}
	if wire.Fold(wire.Sum(payload, h.PseudoSum(len(payload)))) != 0xffff {
		b.WriteString(" BAD CHECKSUM")
	}
	return b.String()
}
