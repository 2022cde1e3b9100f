package ddp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/engine/testkit/havoc"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The reference vectors, and headers with the fields of RFC 5041, figures 4 and 6, filled with different bytes.
var taggedVectors = []struct {
	hex string
	h   Tagged
}{
	{"c1 40 00000001 0000000000000000", Tagged{MakeControl(true, true, IETF), 0x40, 1, 0}},
	{"81 40 12345678 0000000000001000", Tagged{MakeControl(true, false, IETF), 0x40, 0x12345678,
		0x1000}},
	{"c0 00 fefdfcfb 0102030405060708", Tagged{MakeControl(true, true, RDMAC), 0, 0xfefdfcfb,
		0x0102030405060708}},
	{"80 02 00000000 ffffffffffffffff", Tagged{MakeControl(true, false, RDMAC), 2, 0, ^TO(0)}},
}

var untaggedVectors = []struct {
	hex string
	h   Untagged
}{
	{"41 43 00000000 00000000 00000001 00000000", Untagged{MakeControl(false, true, IETF), 0x43, 0,
		0, 1, 0}},
	{"01 44 11223344 00000000 00000007 000005ca", Untagged{MakeControl(false, false, IETF), 0x44,
		0x11223344, 0, 7, 1482}},
	{"40 03 00000000 00000000 00000002 00000000", Untagged{MakeControl(false, true, RDMAC), 3, 0, 0,
		2, 0}},
	{"41 47 00000000 00000002 00000001 00000000", Untagged{MakeControl(false, true, IETF), 0x47, 0,
		2, 1, 0}},
	{"41 43 fefdfcfb 01020304 05060708 090a0b0c", Untagged{MakeControl(false, true, IETF), 0x43,
		0xfefdfcfb, 0x01020304, 0x05060708, 0x090a0b0c}},
}

//req:rfc5041-4.2-1
func TestTaggedHeader(t *testing.T) {
	for _, v := range taggedVectors {
		wire := unhex(t, v.hex)
		h, rest, err := ParseTagged(append(bytes.Clone(wire), 0xee))
		if d := cmp.Diff(v.h, h); err != nil || d != "" || !bytes.Equal(rest, []byte{0xee}) {
			t.Errorf("%s: %v %s rest %x", v.hex, err, d, rest)
		}
		if got := AppendTagged(nil, v.h); !bytes.Equal(got, wire) {
			t.Errorf("append %v: %x", v.h, got)
		}
		for n := range TaggedLen {
			if _, _, err := ParseTagged(wire[:n]); err != ErrShort {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		if _, _, err := ParseUntagged(append(wire, make([]byte, 4)...)); err != ErrModel {
			t.Errorf("parsed as untagged: %v", err)
		}
	}
}

//req:rfc5041-4.3-1
func TestUntaggedHeader(t *testing.T) {
	for _, v := range untaggedVectors {
		wire := unhex(t, v.hex)
		h, rest, err := ParseUntagged(append(bytes.Clone(wire), 0xee))
		if d := cmp.Diff(v.h, h); err != nil || d != "" || !bytes.Equal(rest, []byte{0xee}) {
			t.Errorf("%s: %v %s rest %x", v.hex, err, d, rest)
		}
		if got := AppendUntagged(nil, v.h); !bytes.Equal(got, wire) {
			t.Errorf("append %v: %x", v.h, got)
		}
		for n := range UntaggedLen {
			if _, _, err := ParseUntagged(wire[:n]); err != ErrShort {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		if _, _, err := ParseTagged(wire); err != ErrModel {
			t.Errorf("parsed as tagged: %v", err)
		}
	}
}

// TestControlBits: T 0x80, L 0x40, DV 0x03; the four bits between are ignored.
//
//req:rfc5041-4.1-1 rfc5041-4.1-4
func TestControlBits(t *testing.T) {
	for i := range 256 {
		c := Control(i)
		if c.Tagged() != (i >= 128) || c.Last() != (i&0x40 != 0) || c.Version() != Version(i&3) {
			t.Errorf("%#02x: tagged %v, last %v, version %v", i, c.Tagged(), c.Last(), c.Version())
		}
		if got := MakeControl(c.Tagged(), c.Last(), c.Version()); got != c&0xc3 {
			t.Errorf("%#02x: made again as %#02x", i, got)
		}
		if want := map[bool]int{true: 14, false: 18}[i >= 128]; c.HeaderLen() != want {
			t.Errorf("%#02x: header of %d bytes", i, c.HeaderLen())
		}
	}
}

func FuzzHeaders(f *testing.F) {
	for _, v := range taggedVectors {
		f.Add(AppendTagged(nil, v.h))
	}
	for _, v := range untaggedVectors {
		f.Add(AppendUntagged(nil, v.h))
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		if h, rest, err := ParseTagged(b); err == nil {
			if got := append(AppendTagged(nil, h), rest...); !bytes.Equal(got, b) {
				t.Fatalf("%x became %x", b, got)
			}
		}
		if h, rest, err := ParseUntagged(b); err == nil {
			if got := append(AppendUntagged(nil, h), rest...); !bytes.Equal(got, b) {
				t.Fatalf("%x became %x", b, got)
			}
		}
	})
}
