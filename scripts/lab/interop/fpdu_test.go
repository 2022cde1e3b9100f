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

// Opcodes of RDMAP (RFC 5040, 4.3; RFC 7306, 10.1) by their numbers.
var opcodes = [16]string{
	"Write", "Read Request", "Read Response", "Send", "Send with Invalidate", "Send with SE",
	"Send with SE and Invalidate", "Terminate",
	"Immediate Data", "Immediate Data with SE", "Atomic Request", "Atomic Response",
}

// fpdu is one FPDU in a stream.
type fpdu struct {
	off, n int // in the stream behind the start-up frame, with markers, also one that stands before the length
	opcode byte
	ulpdu  []byte // without markers

	padding []byte
}

const markerEvery = 512 // RFC 5044, 4.3

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walk cuts a stream of FPDUs and checks the CRCs and the markers.
func walk(b []byte, markers, crc bool) (list []fpdu, err error) {
	for at := 0; at < len(b); {
		f, err := one(b, at, markers, crc)
		if err != nil {
			return list, fmt.Errorf("FPDU %d at byte %d: %w", len(list), at, err)
		}
		list = append(list, f)
		at += f.n
	}
	return list, nil
}

func one(b []byte, at int, markers, crc bool) (f fpdu, err error) {
	f.off = at
	begin, end := -1, at // of the length field; behind what was taken
	var plain []byte
	take := func(n int) bool { // n bytes without markers
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
	flags   byte // of its start-up frame
	rev     byte
	private []byte
	markers bool
	fpdus   []fpdu
	stream  []byte // of the FPDUs
	start   int    // of that in the TCP stream
}

// session is a connection that an MPA start-up began, decoded. Its halves are those of the client and of the server.
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

// decode reads a whole connection. A rejected one has no FPDUs.
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
			continue // siw pads short messages with what its memory held, which nobody looks at (RFC 5044, 4)
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

// machine reports whether a is one of the lab's machines.
func machine(a netip.Addr) bool {
	lab4, lab6 := netip.PrefixFrom(vm.PeerAddr4, 24), netip.PrefixFrom(vm.PeerAddr6, 64)
	return (lab4.Contains(a) || lab6.Contains(a)) && a != vm.PeerAddr4 && a != vm.PeerAddr6
}

func (s *session) rejected() bool { return s.half[1].flags&flagR != 0 }

// count returns how often each opcode occurs.
func (s *session) count() map[string]int {
	m := map[string]int{}
	for i := range s.half {
		for _, f := range s.half[i].fpdus {
			m[opcodes[f.opcode]]++
		}
	}
	return m
}
