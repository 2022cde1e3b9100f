package mpa

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"xwarp/mpa/ulpdu"
)

// rewriteMarker gives the n-th marker of b, which begins at stream offset off, another FPDU pointer, and
// makes the CRC right.
func rewriteMarker(b []byte, off, n, ptr int) []byte {
	b = bytes.Clone(b)
	at := int(firstMarker(int64(off))) - off + n*MarkerInterval
	binary.BigEndian.PutUint16(b[at+2:], uint16(ptr))
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

// TestMarkerErrors checks markers that point elsewhere although the CRC is right: MPA error 3 follows, at the latest
// when the hole is filled.
//
//req:rfc5044-4.2-2 rfc5044-8-3
func TestMarkerErrors(t *testing.T) {
	f := Framing{Markers: true, CRC: true}
	t.Run("in order", func(t *testing.T) {
		g := newRig(t, f, 1000, 1000)
		bad := rewriteMarker(g.stream[:g.borders[1]], 0, 1, 8)
		if _, err := g.try(bad, 0); codeOf(err) != ulpdu.CodeMarker {
			t.Error(err)
		}
	})
	t.Run("the first marker is not zero", func(t *testing.T) {
		g := newRig(t, f, 1000)
		if _, err := g.try(rewriteMarker(g.stream, 0, 0, 4), 0); codeOf(err) != ulpdu.CodeMarker {
			t.Error(err)
		}
	})
	t.Run("reserved bits and the low bits of the pointer do not count", func(t *testing.T) {
		g := newRig(t, f, 1000)
		b := rewriteMarker(g.stream, 0, 1, 508|3)
		b[512] = 0xff
		binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		if kept, err := g.try(b, 0); kept != len(b) || err != nil {
			t.Error(kept, err)
		}
	})
	t.Run("behind a hole, the second marker is wrong", func(t *testing.T) {
		g := newRig(t, f, 300, 1000, 1000)
		p := g.borders[1]
		bad := rewriteMarker(g.stream[p:g.borders[2]], p, 1, 8)
		if kept, err := g.try(bad, p); kept != len(bad) || err != nil || len(g.sink.placed) != 0 {
			t.Fatalf("kept %d, %v, %d placed; want it held", kept, err, len(g.sink.placed))
		}
		_, err := g.try(g.stream[:p], 0)
		if codeOf(err) != ulpdu.CodeMarker {
			t.Errorf("the gap is closed: %v", err)
		}
		if e := g.advance(p); e != err || len(g.sink.delivered) != 1 {
			t.Errorf("%d delivered, %v", len(g.sink.delivered), e)
		}
	})
	t.Run("behind a hole, an FPDU hidden in the payload of another", func(t *testing.T) {
		// The marker of the outer FPDU points to the inner one, whose CRC is right. The length chain is right.
		inner := encode(f, 512-4-2-14, make([]byte, 400))
		outer := make([]byte, 900)
		stream := encode(f, 0, outer)
		copy(stream[512-4-2-14:], inner)
		g := newRig(t, f, 100)
		seg := 512 - 4 - 2 - 14
		stream = rewriteMarker(stream, 0, 0, 0)
		if kept, err := g.try(stream[seg:seg+len(inner)], seg); kept != len(inner) || err != nil ||
			len(g.sink.placed) != 1 {
			t.Fatalf("kept %d, %v, %d placed", kept, err, len(g.sink.placed))
		}
		g.try(stream[seg+len(inner):], seg+len(inner))
		var err *ulpdu.Error
		for range maxRepeats + 1 {
			_, err = g.try(stream[:seg], 0)
		}
		if codeOf(err) != ulpdu.CodeMarker || len(g.sink.delivered) != 0 {
			t.Errorf("%v, %d delivered", err, len(g.sink.delivered))
		}
	})
}

// TestPlainMarkers checks FPDUs of several lengths and places with the markers of RFC 5044, 4.3. arePlainMarkers
// detects each changed bit of an FPDU pointer. It ignores the reserved bytes of a marker, and bytes behind it that look
// like a pointer.
func TestPlainMarkers(t *testing.T) {
	for _, off := range []int{0, 4, 200, 508} {
		for _, n := range []int{0, 500, 1200} {
			b := reference(Framing{Markers: true}, off, make([]byte, n))
			if !arePlainMarkers(b, off) {
				t.Errorf("%d bytes %d behind a marker: not plain", n, off)
			}
			for at := (512 - off) % 512; at+4 <= len(b); at += 512 {
				ptr := b[at+2 : at+4]
				was := binary.BigEndian.Uint16(ptr)
				binary.BigEndian.PutUint16(b[at:], was)   // reserved
				binary.BigEndian.PutUint16(b[at+4:], was) // behind the marker
				if !arePlainMarkers(b, off) {
					t.Errorf("%d bytes %d behind a marker: reserved bytes count", n, off)
				}
				for bit := range 16 {
					binary.BigEndian.PutUint16(ptr, was^1<<bit)
					if arePlainMarkers(b, off) {
						t.Errorf("%d bytes %d behind a marker: marker at %d with pointer "+
							"%#x for %#x is plain", n, off, at, was^1<<bit, was)
					}
				}
				binary.BigEndian.PutUint16(ptr, was)
			}
		}
	}
}

// TestMarkerOrigin checks pointers that count from the marker in front of an FPDU, as version 0 peers may write them:
// four more than RFC 5044 says. They are accepted only with AnyMarkerOrigin, the pointers of RFC 5044 always.
//
//req:culley-markers-1
func TestMarkerOrigin(t *testing.T) {
	f := Framing{Markers: true, CRC: true}
	old := rewriteMarker(newRig(t, f, 1000).stream, 0, 1, 512)
	for _, any := range []bool{false, true} {
		g := newRig(t, f, 1000, 1000)
		g.init(ReceiverConfig{AnyMarkerOrigin: any})
		_, err := g.try(old, 0)
		if want := map[bool]uint8{false: ulpdu.CodeMarker}[any]; codeOf(err) != want {
			t.Errorf("any origin %v: %v", any, err)
		}
		// RFC 5044's value is right in both modes.
		g.init(ReceiverConfig{AnyMarkerOrigin: any})
		g.offer(0, len(g.stream))
	}
	// Behind a hole the pointer is a guess that the CRC confirms.
	pad := make([]byte, f.MULPDU(512))
	stream := encode(f, 0, pad)
	for len(stream)%512 != 0 {
		stream = append(encode(f, 0, pad[:len(pad)-1]), stream[len(stream):]...)
		pad = pad[:len(pad)-1]
	}
	p := len(stream)
	second := rewriteMarker(encode(f, p, make([]byte, 1000)), p, 1, 512)
	g := newRig(t, f)
	g.init(ReceiverConfig{AnyMarkerOrigin: true})
	// the marker in front is missing: its CRC cannot be right
	if kept, err := g.try(second[4:], p+4); kept != 0 || err != nil {
		t.Logf("held %d, %v", kept, err)
	}
	g.init(ReceiverConfig{AnyMarkerOrigin: true})
	if kept, err := g.try(second, p); kept != len(second) || err != nil || len(g.sink.placed) != 1 {
		t.Errorf("kept %d, %v, %d placed", kept, err, len(g.sink.placed))
	}
}
