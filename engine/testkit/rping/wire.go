package rping

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// InfoLen is the length of every Send.
const InfoLen = 16

// Info names a buffer of the sender:
//
//	0..7 address (TO)  8..11 STag  12..15 bytes
type Info struct {
	Addr uint64
	STag uint32
	Size uint32
}

// Append appends the 16 bytes to b.
func (i Info) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, i.Addr)
	b = binary.BigEndian.AppendUint32(b, i.STag)
	return binary.BigEndian.AppendUint32(b, i.Size)
}

// ParseInfo decodes a Send, which must have 16 bytes.
func ParseInfo(b []byte) (i Info, err error) {
	if len(b) != InfoLen {
		return i, fmt.Errorf("a Send of %d bytes; rping's have %d: is the peer another program?",
			len(b), InfoLen)
	}
	i.Addr = binary.BigEndian.Uint64(b)
	i.STag = binary.BigEndian.Uint32(b[8:])
	i.Size = binary.BigEndian.Uint32(b[12:])
	return i, nil
}

func (i Info) String() string {
	return fmt.Sprintf("rkey %x addr %x len %d", i.STag, i.Addr, i.Size)
}

// The text is followed by the bytes from 'A' to 'z', in rotation. Each iteration begins with the next of these bytes.
const (
	firstLetter = 'A'
	letters     = 'z' - 'A' + 1
)

// Fill writes the data of iteration n, which counts from 0, to p: the text, letters, and a final zero.
func Fill(p []byte, n int) {
	if len(p) == 0 {
		return
	}
	at := copy(p, "rdma-ping-")
	at += copy(p[at:], strconv.AppendInt(nil, int64(n), 10))
	at += copy(p[at:], ": ")
	for i := at; i < len(p); i++ {
		p[i] = byte(firstLetter + (n+i-at)%letters)
	}
	p[len(p)-1] = 0
}

// compare returns an error that names the first byte in which got differs from the data of iteration n.
func compare(got []byte, n int) error {
	want := make([]byte, len(got))
	Fill(want, n)
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("data mismatch in iteration %d: byte %d of %d is %#02x, want %#02x",
				n, i, len(got), got[i], want[i])
		}
	}
	return nil
}

// text returns the data up to its first zero.
func text(p []byte) []byte {
	if i := bytes.IndexByte(p, 0); i >= 0 {
		return p[:i]
	}
	return p
}
