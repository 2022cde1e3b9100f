package ring

import (
	"encoding/binary"
	"io"
	"net/netip"
	"strconv"
)

// Trace is a Port that writes one line for each packet received or sent and for each change of state:
//
//	12.000000345 rx 66 10.0.0.1:7 > 10.0.0.2:4711 tcp A seq 17 ack 5 len 0
//
// Time is in seconds, then direction and octets of the frame. It reads at most the first piece of a packet.
type Trace struct {
	Port
	w     io.Writer
	clock func() int64
	line  []byte
	head  [128]byte
	state State
	err   error
}

// NewTrace wraps p. clock gives nanoseconds. After the first failure of w, Err tells it and nothing more is written.
func NewTrace(p Port, w io.Writer, clock func() int64) *Trace {
	return &Trace{Port: p, w: w, clock: clock, line: make([]byte, 0, 256)}
}

// Err returns the first failure to write.
func (t *Trace) Err() error { return t.err }

// Recv is Port.Recv, traced.
func (t *Trace) Recv(batch []Packet) int {
	n := t.Port.Recv(batch)
	for i := range batch[:n] {
		t.packet(" rx ", batch[i].Frag(0), batch[i].Len())
	}
	return n
}

// Send is Port.Send, traced.
func (t *Trace) Send(b TxBuf, n int) {
	if n >= 0 && n <= len(b.Data) {
		t.packet(" tx ", b.Data[:n], n)
	}
	t.Port.Send(b, n)
}

// Flush is Port.Flush; it traces the state when that differs from the last one.
func (t *Trace) Flush() State {
	st := t.Port.Flush()
	if st != t.state {
		t.begin(" state ")
		t.line = append(append(append(t.line, t.state.String()...), " > "...), st.String()...)
		t.state = st
		t.end()
	}
	return st
}

func (t *Trace) begin(what string) {
	now := t.clock()
	t.line = strconv.AppendInt(t.line[:0], now/1e9, 10)
	nano := strconv.AppendInt(t.head[:0], 1e9+now%1e9, 10)
	t.line = append(append(t.line, '.'), nano[1:]...)
	t.line = append(t.line, what...)
}

func (t *Trace) end() {
	if t.err != nil {
		return
	}
	_, t.err = t.w.Write(append(t.line, '\n'))
}

func (t *Trace) packet(what string, b []byte, n int) {
	if t.err != nil {
		return
	}
	t.begin(what)
	t.line = strconv.AppendInt(t.line, int64(n), 10)
	t.line = appendSummary(append(t.line, ' '), b)
	t.end()
}

// appendSummary describes the frame that begins with b: addresses and ports of TCP over IP, else the EtherType.
func appendSummary(dst, b []byte) []byte {
	at := 12
	for len(b) >= at+6 && (b[at] == 0x81 && b[at+1] == 0 || b[at] == 0x88 && b[at+1] == 0xa8) {
		at += 4
	}
	if len(b) < at+2 {
		return append(dst, "short"...)
	}
	kind, ip := binary.BigEndian.Uint16(b[at:]), b[at+2:]
	switch {
	case kind == 0x0800 && len(ip) >= 20:
		hdr, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		src, _ := netip.AddrFromSlice(ip[12:16])
		to, _ := netip.AddrFromSlice(ip[16:20])
		if len(ip) >= hdr {
			return appendTransport(dst, src, to, ip[9], ip[hdr:], total-hdr)
		}
	case kind == 0x86dd && len(ip) >= 40:
		src, _ := netip.AddrFromSlice(ip[8:24])
		to, _ := netip.AddrFromSlice(ip[24:40])
		return appendTransport(dst, src, to, ip[6], ip[40:], int(binary.BigEndian.Uint16(ip[4:])))
	}
	return strconv.AppendUint(append(dst, "type 0x"...), uint64(kind), 16)
}

// appendTransport describes what an IP packet carries: n octets of protocol proto, which begin with b.
func appendTransport(dst []byte, from, to netip.Addr, proto byte, b []byte, n int) []byte {
	if proto != 6 || len(b) < 20 {
		dst = append(from.AppendTo(dst), " > "...)
		return strconv.AppendUint(append(to.AppendTo(dst), " protocol "...), uint64(proto), 10)
	}
	dst = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)).AppendTo(dst)
	dst = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])).AppendTo(append(dst, " > "...))
	dst = append(dst, " tcp "...)
	for i, c := range []byte("FSRPAUEC") {
		if b[13]>>i&1 != 0 {
			dst = append(dst, c)
		}
	}
	dst = strconv.AppendUint(append(dst, " seq "...), uint64(binary.BigEndian.Uint32(b[4:])), 10)
	dst = strconv.AppendUint(append(dst, " ack "...), uint64(binary.BigEndian.Uint32(b[8:])), 10)
	return strconv.AppendInt(append(dst, " len "...), int64(n-int(b[12]>>4)*4), 10)
}
