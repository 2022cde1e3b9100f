package script

import (
	"fmt"
	"net/netip"

	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

// Ports and the peer's first sequence number. It is close to a wrap, so that most scripts cross 2^32.
const (
	hostPort = 8080
	peerPort = 40000
	peerISN  = seq.Num(1<<32 - 2500)
)

// ends are the addresses of a run.
type ends struct{ host, peer netip.Addr }

// addresses gives each run its own peer, so that cached state of a peer does not affect another script.
func addresses(v6 bool, n int) ends {
	hi, lo := byte(n>>8), byte(n)
	if v6 {
		return ends{netip.MustParseAddr("fd00::1"),
			netip.AddrFrom16([16]byte{0: 0xfd, 13: 2, 14: hi, 15: lo})}
	}
	return ends{netip.AddrFrom4([4]byte{10, 1, 0, 1}), netip.AddrFrom4([4]byte{10, 2, hi, lo})}
}

func addr(a netip.Addr) ip.Addr { return ip.Addr(a.As16()) }

// flow is the peer's view of one connection.
type flow struct {
	host, peer uint16 // ports
	isn        seq.Num
	hostISN    seq.Num
	known      bool // hostISN is known
	x          vars
	win        int
	peerShift  uint8 // window scale that the peer offered
	hostShift  uint8
	shifts     [2]bool // whether the peer, and whether the host, offered window scaling
	stamps     [2]bool // whether the peer, and whether the host, sent timestamps with its SYN
	lastTS     uint32  // last timestamp of the host
	shrinks    bool    // the host is known to shrink its window when memory is short
}

func newFlow(n int) *flow {
	return &flow{host: hostPort, peer: uint16(peerPort + n), isn: peerISN, win: 65535, x: vars{}}
}

func (f *flow) scaled() bool   { return f.shifts[0] && f.shifts[1] }
func (f *flow) stamping() bool { return f.stamps[0] && f.stamps[1] }

// seen is a segment that the host sent.
type seen struct {
	wire.Header
	IP      ip.Header
	payload []byte
	quote   []byte // the packet, for ICMP errors
	seq     int    // relative sequence number
	ack     int
	win     int // announced window in bytes
	sack    [][2]int
}

// decode parses a packet of the host. It returns false if the packet is not TCP.
func decode(b []byte) (*seen, bool, error) {
	s := &seen{quote: b}
	off, err := s.IP.Decode(b)
	if err != nil {
		return nil, false, nil
	}
	if s.IP.Proto != ip.ProtoTCP {
		return nil, false, nil
	}
	body := b[off : off+s.IP.PayloadLen]
	if wire.Fold(wire.Sum(body, s.IP.PseudoSum(len(body)))) != 0xffff {
		return nil, true, fmt.Errorf("the host sent a segment with a wrong checksum")
	}
	n, err := s.Header.Decode(body)
	if err != nil {
		return nil, true, fmt.Errorf("the host sent a segment that cannot be read: %w", err)
	}
	s.payload = body[n:]
	return s, true, nil
}

// observe makes the sequence numbers of s relative. A SYN gives f the host's initial sequence number and options.
func (f *flow) observe(s *seen) {
	if s.Flags&wire.SYN != 0 {
		f.hostISN, f.known = s.Seq, true
		f.shifts[1] = s.Opt.Present.Has(wire.HasWScale)
		f.hostShift = s.Opt.WScale
		f.stamps[1] = s.Opt.Present.Has(wire.HasTS)
	}
	s.seq = s.Seq.Diff(f.hostISN)
	s.win = int(s.Window)
	if f.scaled() && s.Flags&wire.SYN == 0 {
		s.win <<= f.hostShift
	}
	if s.Flags&wire.ACK != 0 {
		s.ack = s.Ack.Diff(f.isn)
	}
	for _, r := range s.Opt.SACK[:s.Opt.NSACK] {
		s.sack = append(s.sack, [2]int{r.Start.Diff(f.isn), r.End.Diff(f.isn)})
	}
	if s.Opt.Present.Has(wire.HasTS) {
		f.lastTS = s.Opt.TSVal
	}
}

// learn sets the variables once the script has consumed s, and checks the rules for every segment: both edges of the
// window only move right (RFC 9293, 3.8.6), except the right edge of a host that shrinks its window, and IPv4 packets
// must have DF set (RFC 1191).
func (f *flow) learn(s *seen) error {
	if !s.IP.V6 && !s.IP.DF {
		return fmt.Errorf("%v may be fragmented", s)
	}
	if s.Flags&wire.RST != 0 {
		return nil
	}
	if s.Flags&wire.ACK != 0 {
		grain := 1
		if f.scaled() {
			grain <<= f.hostShift
		}
		shrunk := s.ack+s.win <= f.x["edge"]-grain
		if s.ack < f.x["ack"] || shrunk && !f.shrinks {
			return fmt.Errorf("%v takes back: acknowledged %d, right edge %d", s, f.x["ack"],
				f.x["edge"])
		}
		if shrunk {
			f.x["edge"] = 0
		}
		f.x["ack"] = s.ack
		f.x["edge"] = max(f.x["edge"], s.ack+s.win)
		f.x["win"] = s.win
	}
	end := s.seq + len(s.payload)
	if s.Flags&wire.SYN != 0 {
		end++
	}
	if s.Flags&wire.FIN != 0 {
		end++
	}
	f.x["nxt"] = max(f.x["nxt"], end)
	return nil
}

// patternByte returns the byte of either side's stream at relative sequence number n.
func patternByte(n int) byte { return byte(n*7 + n>>8*13) }

func pattern(start, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = patternByte(start + i)
	}
	return b
}

// checkPattern compares b with the bytes from number start on. If one is wrong, it returns the first such number and
// false.
func checkPattern(b []byte, start int) (int, bool) {
	for i, v := range b {
		if v != patternByte(start+i) {
			return start + i, false
		}
	}
	return 0, true
}
