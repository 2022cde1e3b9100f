// Package interop runs unmodified programs of rdma-core over Linux's soft-iWARP in a virtual machine against
// this engine. tshark and a simple reader of this package decode the traffic. README.md lists the observations.
//
// This package's decoding shares no code with packages mpa and ddp, whose output it checks.
package interop

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"

	"xwarp/scripts/lab"
	"xwarp/scripts/lab/vm"
)

// opcodes are the names of RDMAP's opcodes (RFC 5040, 4.3; RFC 7306, 10.1) by their numbers.
var opcodes = [16]string{
	"Write", "Read Request", "Read Response", "Send", "Send with Invalidate", "Send with SE",
	"Send with SE and Invalidate", "Terminate",
	"Immediate Data", "Immediate Data with SE", "Atomic Request", "Atomic Response",
}

// fpdu is one FPDU in a stream.
type fpdu struct {
	off, n int // place in the stream after the start-up frame, markers included, also one before the length field
	opcode byte
	ulpdu  []byte // without markers

	padding []byte
}

const markerEvery = 512 // bytes from marker to marker (RFC 5044, 4.3)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walk splits the stream b into its FPDUs. It checks markers if the stream has them, and CRCs if crc.
func walk(b []byte, markers, crc bool) (list []fpdu, err error) {
	for at := 0; at < len(b); {
		f, err := readFPDU(b, at, markers, crc)
		if err != nil {
			return list, fmt.Errorf("FPDU %d at byte %d: %w", len(list), at, err)
		}
		list = append(list, f)
		at += f.n
	}
	return list, nil
}

func readFPDU(b []byte, at int, markers, crc bool) (f fpdu, err error) {
	f.off = at
	begin, end := -1, at       // offset of the length field, -1 until it is known; offset after the last byte taken
	var plain []byte           // the bytes taken, without markers
	take := func(n int) bool { // takes n bytes, not counting markers; false if the stream ends or a marker is wrong
		for n > 0 {
			if markers && end%markerEvery == 0 {
				if end+4 > len(b) {
					return false
				}
				want := 0
				if begin >= 0 {
					want = end - begin
				}
				if got := int(binary.BigEndian.Uint16(b[end+2:])); got != want {
					err = fmt.Errorf("the marker at byte %d points back %d bytes, want %d", end,
						got, want)
					return false
				}
				end += 4
			}
			if begin < 0 {
				begin = end
			}
			k := n
			if markers {
				k = min(k, markerEvery-end%markerEvery)
			}
			if end+k > len(b) {
				return false
			}
			plain = append(plain, b[end:end+k]...)
			end, n = end+k, n-k
		}
		return true
	}
	short := func() (fpdu, error) {
		if err == nil {
			err = fmt.Errorf("it is cut off at byte %d, where the stream ends", len(b))
		}
		return f, err
	}
	if !take(2) {
		return short()
	}
	n := int(binary.BigEndian.Uint16(plain))
	pad := -(2 + n) & 3
	if !take(n+pad) || !take(4) {
		return short()
	}
	f.n, f.ulpdu = end-at, plain[2:2+n]
	if n < 14 {
		return f, fmt.Errorf("a ULPDU of %d bytes", n)
	}
	f.opcode = f.ulpdu[1] & 15
	f.padding = plain[2+n : 2+n+pad]
	if crc {
		// The last four bytes are the CRC, whose first byte is the least significant.
		got, want := binary.LittleEndian.Uint32(b[end-4:]), crc32.Checksum(b[at:end-4], castagnoli)
		if got != want {
			return f, fmt.Errorf("CRC %08x, want %08x", got, want)
		}
	}
	return f, nil
}

// half is one direction of a connection, decoded.
type half struct {
	flags   byte   // flags of the start-up frame
	rev     byte   // revision in the start-up frame
	private []byte // private data in the start-up frame
	markers bool   // the FPDUs have markers
	fpdus   []fpdu
	stream  []byte // the bytes after the start-up frame
	start   int    // offset of stream in the TCP stream
}

// session is a decoded connection that begins with an MPA start-up. half[0] is what the client sent, half[1] what the
// server sent.
type session struct {
	conn *lab.Conn
	half [2]half
	crc  bool
}

const (
	flagM = 0x80
	flagC = 0x40
	flagR = 0x20
)

// decode decodes a whole connection. If the server rejected it, there are no FPDUs.
func decode(c *lab.Conn) (*session, error) {
	s := &session{conn: c}
	for i, h := range []*lab.Half{&c.Up, &c.Down} {
		frame, rest, err := h.Startup()
		if err != nil {
			return s, err
		}
		s.half[i] = half{flags: frame[16], rev: frame[17], private: frame[20:], stream: rest,
			start: len(frame)}
	}
	s.crc = (s.half[0].flags|s.half[1].flags)&flagC != 0
	s.half[0].markers, s.half[1].markers = s.half[1].flags&flagM != 0, s.half[0].flags&flagM != 0
	if s.rejected() {
		return s, nil
	}
	for i := range s.half {
		h := &s.half[i]
		var err error
		if h.fpdus, err = walk(h.stream, h.markers, s.crc); err != nil {
			return s, fmt.Errorf("stream of the %s: %w", [...]string{"client", "server"}[i], err)
		}
		if machine([]netip.AddrPort{c.Client, c.Server}[i].Addr()) {
			continue // siw's padding may have any value: receivers ignore it (RFC 5044, 4)
		}
		for n, f := range h.fpdus {
			if slices.ContainsFunc(f.padding, func(b byte) bool { return b != 0 }) {
				return s, fmt.Errorf("padding %x of FPDU %d of the %s", f.padding, n,
					[...]string{"client", "server"}[i])
			}
		}
	}
	return s, nil
}

// machine reports whether a is the address of one of the lab's machines.
func machine(a netip.Addr) bool {
	lab4, lab6 := netip.PrefixFrom(vm.PeerAddr4, 24), netip.PrefixFrom(vm.PeerAddr6, 64)
	return (lab4.Contains(a) || lab6.Contains(a)) && a != vm.PeerAddr4 && a != vm.PeerAddr6
}

func (s *session) rejected() bool { return s.half[1].flags&flagR != 0 }

// count returns how many FPDUs of both directions have each opcode.
func (s *session) count() map[string]int {
	m := map[string]int{}
	for i := range s.half {
		for _, f := range s.half[i].fpdus {
			m[opcodes[f.opcode]]++
		}
	}
	return m
}
