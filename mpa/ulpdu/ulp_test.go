package ulpdu

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// TestViewCuts reads a ULPDU through every way to cut it into three pieces.
//
//req:rfc5044-3-4
func TestViewCuts(t *testing.T) {
	whole := []byte("0123456789abcdefghij")
	for i := 0; i <= len(whole); i++ {
		for j := i; j <= len(whole); j++ {
			var v View
			v.Append([]byte("left over"))
			v.Reset()
			for _, p := range [][]byte{whole[:i], whole[i:j], whole[j:]} {
				v.Append(p)
			}
			if v.Len() != len(whole) {
				t.Fatalf("cut %d,%d: Len %d", i, j, v.Len())
			}
			var scratch [18]byte
			for _, n := range []int{0, 1, 14, 18} {
				if got := v.Header(n, scratch[:]); !bytes.Equal(got, whole[:n]) {
					t.Fatalf("cut %d,%d: Header(%d) = %q", i, j, n, got)
				}
			}
			for off := 0; off <= len(whole)+1; off++ {
				for _, room := range []int{0, 1, 5, 30} {
					dst := make([]byte, room)
					want := whole[min(off, len(whole)):]
					want = want[:min(room, len(want))]
					if n := v.CopyTo(dst, off); !bytes.Equal(dst[:n], want) {
						t.Fatalf("cut %d,%d: CopyTo(%d bytes, %d) = %q, want %q", i, j, room, off,
							dst[:n], want)
					}
				}
			}
		}
	}
}

func TestViewShort(t *testing.T) {
	v := ViewOf([]byte("ab"), nil, []byte("c"))
	var scratch [18]byte
	if got := v.Header(18, scratch[:]); string(got) != "abc" {
		t.Errorf("Header of a short ULPDU = %q", got)
	}
	var empty View
	if got := empty.Header(18, scratch[:]); len(got) != 0 {
		t.Errorf("Header of an empty ULPDU = %q", got)
	}
	empty.Append(nil)
	empty.Append([]byte("d"))
	empty.Append([]byte{})
	if p := empty.Pieces(); len(p) != 1 || string(p[0]) != "d" || empty.Len() != 1 {
		t.Errorf("pieces %q, %d bytes: empty ones count", p, empty.Len())
	}
	if n := v.CopyTo(scratch[:], -1); n != 0 {
		t.Errorf("CopyTo from a negative offset copied %d bytes", n)
	}
}

func TestError(t *testing.T) {
	e := Newf(MPA, 0, 2, "FPDU at byte %d", 40)
	if got, want := e.Error(), "MPA error (terminate 2/0/02): FPDU at byte 40"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if wrapped := fmt.Errorf("stream 7: %w", e); !errors.Is(wrapped, &Error{Layer: MPA, Code: 2}) ||
		errors.Is(wrapped, &Error{Layer: DDP, Code: 2}) {
		t.Error("errors.Is does not go by layer, type and code")
	}
	if got, want := Newf(DDP, 1, 0x2a, "").Error(), "DDP error (terminate 1/1/2a)"; got != want {
		t.Errorf("without a detail: %q, want %q", got, want)
	}
	for want, l := range map[string]Layer{"RDMAP": 0, "DDP": 1, "MPA": 2, "layer 3": 3,
		"layer 9": 9} {
		if got := l.String(); got != want {
			t.Errorf("layer %d prints as %q, want %q", uint8(l), got, want)
		}
	}
}

// TestErrorIs: layer, type and code make an error, and nothing else does (RFC 5040, 4.8).
func TestErrorIs(t *testing.T) {
	e, none := Newf(DDP, 1, 2, "here"), (*Error)(nil)
	for _, c := range []struct {
		e      *Error
		target error
		want   bool
	}{
		{e, e, true},
		{e, Newf(DDP, 1, 2, "there"), true},
		{e, Newf(MPA, 1, 2, "here"), false},
		{e, Newf(DDP, 0, 2, "here"), false},
		{e, Newf(DDP, 1, 3, "here"), false},
		{e, none, false},
		{none, e, false},
		{none, none, false},
		{e, errors.New(e.Error()), false},
	} {
		if got := c.e.Is(c.target); got != c.want {
			t.Errorf("Is of %#v and %#v: %v", c.e, c.target, got)
		}
	}
}
