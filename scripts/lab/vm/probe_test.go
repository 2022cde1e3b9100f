package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// This file has a second, deliberately simple implementation of the MPA start-up over kernel TCP. It shares no code
// with packages mpa and ddp.

const (
	flagM = 0x80
	flagC = 0x40
	flagR = 0x20
	flagS = 0x10
)

var (
	keyReq = []byte("MPA ID Req Frame")
	keyRep = []byte("MPA ID Rep Frame")
)

// startup returns an MPA start-up frame.
func startup(key []byte, flags, rev byte, private ...byte) []byte {
	b := append([]byte(nil), key...)
	b = append(b, flags, rev)
	b = binary.BigEndian.AppendUint16(b, uint16(len(private)))
	return append(b, private...)
}

// v2 returns the enhanced data of RFC 6581: IRD and ORD, each with control bits in its upper bits.
func v2(ird, ord uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, ird), ord)
}

// describe returns as text a start-up frame and the FPDUs after it.
func describe(b []byte) string {
	if len(b) < 20 {
		return fmt.Sprintf("%d bytes %x", len(b), b)
	}
	flags := ""
	for i, name := range "MCRS" {
		if b[16]&(0x80>>i) != 0 {
			flags += string(name)
		}
	}
	if flags == "" {
		flags = "-"
	}
	if low := b[16] & 0x0f; low != 0 {
		flags += fmt.Sprintf("+%#x", low)
	}
	n := min(int(binary.BigEndian.Uint16(b[18:])), len(b)-20)
	s := fmt.Sprintf("%q flags %s rev %d private %d", b[7:10], flags, b[17],
		binary.BigEndian.Uint16(b[18:]))
	if n > 0 && n <= 24 {
		s += fmt.Sprintf(" [%x]", b[20:20+n])
	}
	if rest := b[20+n:]; len(rest) > 0 {
		s += " then " + describeFPDUs(rest)
	}
	return s
}

var opcodes = [16]string{"Write", "ReadRequest", "ReadResponse", "Send", "SendInv", "SendSE",
	"SendSEInv", "Terminate", "Imm", "ImmSE", "AtomicReq", "AtomicResp"}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// describeFPDUs returns as text each FPDU of a stream without markers. It leaves out STags, which differ from run to
// run.
func describeFPDUs(b []byte) string {
	var list []string
	for len(b) > 0 {
		if len(b) < 8 {
			return strings.Join(append(list, fmt.Sprintf("partial %x", b)), ", ")
		}
		n := int(binary.BigEndian.Uint16(b))
		whole := (2+n+3)&^3 + 4
		if n < 14 || whole > len(b) {
			return strings.Join(append(list, fmt.Sprintf("no FPDU: %x", b[:min(len(b), 32)])), ", ")
		}
		ulpdu, crc := b[2:2+n], binary.LittleEndian.Uint32(b[whole-4:])
		s := fmt.Sprintf("%s(%d)", opcodes[ulpdu[1]&15], n)
		switch {
		case crc == 0:
			s += " CRC field 0"
		case crc != crc32.Checksum(b[:whole-4], castagnoli):
			s += " CRC bad"
		}
		switch ulpdu[1] & 15 {
		case 1:
			s += fmt.Sprintf(" MSN %d length %d", binary.BigEndian.Uint32(ulpdu[10:]),
				binary.BigEndian.Uint32(ulpdu[30:]))
		case 3:
			s += fmt.Sprintf(" MSN %d", binary.BigEndian.Uint32(ulpdu[10:]))
		case 7:
			s += fmt.Sprintf(" [%x]", ulpdu[18:min(n, 22)])
		}
		list = append(list, s)
		b = b[whole:]
	}
	return strings.Join(list, ", ")
}

// fpdu returns an FPDU with the given ULPDU and without markers. With badCRC its CRC is wrong.
func fpdu(ulpdu []byte, badCRC bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	crc := crc32.Checksum(b, castagnoli)
	if badCRC {
		crc ^= 1
	}
	return binary.LittleEndian.AppendUint32(b, crc)
}

// untagged returns an untagged ULPDU: the only segment of a message on queue qn.
func untagged(opcode byte, qn, msn uint32, payload ...byte) []byte {
	b := []byte{0x41, 0x40 | opcode, 0, 0, 0, 0}
	for _, w := range []uint32{qn, msn, 0} {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(b, payload...)
}

// tagged returns a tagged ULPDU: the only segment of a message, for offset 0 of stag.
func tagged(opcode byte, stag uint32, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0xc1, 0x40 | opcode}, stag)
	return append(append(b, make([]byte, 8)...), payload...)
}

// rpingInfo returns the message with which rping advertises a buffer: address, STag, size.
func rpingInfo(size uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, 0x1000)
	b = binary.BigEndian.AppendUint32(b, 0x1234)
	return binary.BigEndian.AppendUint32(b, size)
}

// listen reads until nothing has arrived for the time quiet, or until the connection ends. how is "open" in the first
// case, otherwise "FIN", "RST" or the text of another error.
func listen(c net.Conn, quiet time.Duration) (got []byte, how string) {
	buf := make([]byte, 4096)
	for {
		c.SetReadDeadline(time.Now().Add(quiet))
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return got, "open"
		case errors.Is(err, io.EOF):
			return got, "FIN"
		case errors.Is(err, syscall.ECONNRESET):
			return got, "RST"
		default:
			return got, err.Error()
		}
	}
}
