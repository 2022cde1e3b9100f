package mpa

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// castagnoli is the CRC32C table of the standard library.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// memSource is a Source over ULPDUs in memory; it cuts none.
type memSource struct {
	ulpdus   [][]byte
	next     int
	released int
}

func (m *memSource) NextULPDU(most int) (ulpdu.Ref, int) {
	if m.next == len(m.ulpdus) {
		return ulpdu.Ref{}, 0
	}
	m.next++
	return ulpdu.Ref{ID: uint64(m.next - 1)}, len(m.ulpdus[m.next-1])
}

func (m *memSource) ULPDUWaiting() bool { return m.next < len(m.ulpdus) }

func (m *memSource) ReadULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) {
	if n := copy(dst, m.ulpdus[ref.ID]); n != len(dst) {
		panic("ReadULPDU with the wrong length")
	}
	return len(dst), nil
}

func (m *memSource) LendULPDU(ulpdu.Ref, []byte) (int, []byte) { return 0, nil }

func (m *memSource) ReleaseULPDU(ref ulpdu.Ref) {
	if ref.ID != uint64(m.released) {
		panic("ReleaseULPDU out of order")
	}
	m.released++
}

// reference makes the FPDU of ulpdu at stream offset off word by word, as RFC 5044, 4.1 to 4.4, says, and not as
// putFPDU does.
func reference(f Framing, off int, ulpdu []byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	body = append(body, ulpdu...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	body = append(body, "CRC."...)
	var out []byte
	length := -1
	for w := 0; w < len(body); w += 4 {
		if f.Markers && (off+len(out))%512 == 0 {
			ptr := 0
			if length >= 0 {
				ptr = len(out) - length
			}
			out = append(out, 0, 0, byte(ptr>>8), byte(ptr))
		}
		if length < 0 {
			length = len(out)
		}
		out = append(out, body[w:w+4]...)
	}
	crc := uint32(0)
	if f.CRC {
		crc = crc32.Checksum(out[:len(out)-4], castagnoli)
	}
	binary.LittleEndian.PutUint32(out[len(out)-4:], crc)
	return out
}

// encode returns the FPDU that the package makes.
func encode(f Framing, off int, payload []byte) []byte {
	dst := make([]byte, f.Size(uint64(off), len(payload)))
	f.putFPDU(dst, uint32(off), &memSource{ulpdus: [][]byte{payload}}, ulpdu.Ref{}, len(payload))
	return dst
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zeros(n int) string { return strings.Repeat("00", n) }

// ramp is n bytes i&0xff in hex.
func ramp(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return hex.EncodeToString(b)
}

// vectors are whole FPDUs. The first two are figures 5 and 6 of RFC 5044, the next two figures 5 and 6 of
// draft-culley-iwarp-mpa-00, whose control bytes are of version 0; the others were made by an independent program.
var vectors = []struct {
	name    string
	markers bool
	off     int
	ulpdu   string
	fpdu    string
}{
	{"RFC 5044 figure 5", true, 0, "414300000000000000000000000100000000" + zeros(24),
		"00000000 002a 4143 00000000 00000000 00000001 00000000" + zeros(24) + "52239983"},
	{"RFC 5044 figure 6", true, 0x1ec, "414300000000000000000000000200000000" + zeros(24),
		"002a 4143 00000000 00000000 00000002 00000000 00000014" + zeros(24) + "84925898"},
	{"draft-culley-00 figure 5", true, 0, "400300000000000000000000000100000000" + zeros(24),
		"00000000 002a 4003 00000000 00000000 00000001 00000000" + zeros(24) + "4c86b384"},
	{"draft-culley-00 figure 6", true, 0x1ec, "400300000000000000000000000200000000" + zeros(24),
		"002a 4003 00000000 00000000 00000002 00000000 00000014" + zeros(24) + "a19cd103"},
	{"RTR Write, STag 1", false, 0, "c140000000010000000000000000",
		"000ec14000000001 0000000000000000 ebd34c5f"},
	{"RTR Write, STag 0", false, 0, "c140000000000000000000000000",
		"000ec14000000000 0000000000000000 a30572ab"},
	{"RTR Send", false, 0, "414300000000000000000000000100000000",
		"00124143 00000000 00000000 00000001 00000000 587be8c4"},
	{"RTR Read", false, 0,
		"41410000000000000001000000010000000000000001000000000000000000000000000000010000000000000000",
		"002e4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 " +
			"00000001 0000000000000000 27dbd7e7"},
	{"zero-length Read Response", false, 0, "c142000000010000000000000000",
		"000ec14200000001 0000000000000000 21a3e83e"},
	{"RTR Write behind the first marker", true, 0, "c140000000010000000000000000",
		"00000000 000ec14000000001 0000000000000000 3f1ff9a1"},
	{"RTR Send behind the first marker", true, 0, "414300000000000000000000000100000000",
		"00000000 00124143 00000000 00000000 00000001 00000000 88c1d6fc"},
	{"Terminate 2/0/7", false, 0, "41470000000000000002000000010000000020070000",
		"00164147 00000000 00000002 00000001 00000000 20070000 1bd2babe"},
	{"Terminate 2/0/6", false, 0, "41470000000000000002000000010000000020060000",
		"00164147 00000000 00000002 00000001 00000000 20060000 6540fb1b"},
	{"pad 3", false, 0, "41430000000000000000000000010000000001",
		"00134143 00000000 00000000 00000001 00000000 01 000000 16c9d732"},
	{"pad 2", false, 0, "4143000000000000000000000001000000000102",
		"00144143 00000000 00000000 00000001 00000000 0102 0000 423d6f31"},
	{"pad 1", false, 0, "414300000000000000000000000100000000010203",
		"00154143 00000000 00000000 00000001 00000000 010203 00 e3655b70"},
	{"Immediate", false, 0, "4148000000000000000000000001000000001122334455667788",
		"001a4148 00000000 00000000 00000001 00000000 1122334455667788 fa7ee097"},
	{"FetchAdd", false, 0, "414a00000000000000010000000100000000" + "00000000 00000007 00000100 " +
		"0000000000001000 0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff",
		"0046414a 00000000 00000001 00000001 00000000 00000000 00000007 00000100 " +
			"0000000000001000 0000000000000001 0000000000000000 0000000000000000 " +
			"ffffffffffffffff 9abe54fd"},
	{"Atomic Response", false, 0, "414b00000000000000030000000100000000" +
		"00000007 0000000000000029",
		"001e414b 00000000 00000003 00000001 00000000 00000007 0000000000000029 b9ebafe8"},
	{"Write of 1000", false, 0, "c140123456780000000000001000" + ramp(1000),
		"03f6c140 12345678 0000000000001000" + ramp(1000) + "6111a023"},
	{"Write of 1000 with three markers", true, 0, "c140123456780000000000001000" + ramp(1000),
		"00000000 03f6c140 12345678 0000000000001000" + ramp(1000)[:2*492] + "000001fc" +
			ramp(1000)[2*492:2*1000] + "000003fc 4d2a04e6"},
	{"marker between PAD and CRC", true, 468, "414300000000000000000000000300000000" + zeros(24),
		"002a4143 00000000 00000000 00000003 00000000" + zeros(24) + "0000002c e382d8ff"},
	{"the end at 512", true, 464, "414300000000000000000000000300000000" + zeros(24),
		"002a4143 00000000 00000000 00000003 00000000" + zeros(24) + "0cc46529"},
	{"behind the end at 512", true, 512, "414300000000000000000000000400000000" + zeros(24),
		"00000000 002a4143 00000000 00000000 00000004 00000000" + zeros(24) + "f05f19a5"},
}

//req:rfc5044-3-1 rfc5044-4.1-1 rfc5044-4.2-1 rfc5044-4.3-1 rfc5044-4.3-2 rfc5044-4.3-3 rfc5044-4.3-5 rfc5044-4.4-4
//req:rfc5044-4.4-5
func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			f := Framing{Markers: v.markers, CRC: true}
			u, want := unhex(t, v.ulpdu), unhex(t, v.fpdu)
			if got := encode(f, v.off, u); !bytes.Equal(got, want) {
				t.Errorf("FPDU\n got %x\nwant %x", got, want)
			}
			if got := reference(f, v.off, u); !bytes.Equal(got, want) {
				t.Errorf("the reference of these tests is wrong\n got %x\nwant %x", got, want)
			}
			// The receiver accepts it at the same place of the stream, behind a filler.
			sink := &logSink{}
			var r Receiver
			r.Init(ReceiverConfig{Framing: f, Pool: NewPool(0, 0)}, 77, sink)
			stream := append(filler(f, v.off), want...)
			kept, err := r.Offer(77, [][]byte{stream}, len(stream), checksum.Known{})
			if kept != len(stream) || err != nil {
				t.Fatalf("Offer kept %d of %d, %v", kept, len(stream), err)
			}
			if err := r.Advance(77); err != nil || len(sink.delivered) != 0 {
				t.Errorf("delivered %d FPDUs before the left edge moved, %v", len(sink.delivered),
					err)
			}
			if err := r.Advance(seq.Num(77).Add(len(stream))); err != nil {
				t.Fatal(err)
			}
			if n := len(sink.placed); n == 0 || !bytes.Equal(sink.placed[n-1], u) {
				t.Errorf("placed %x, want %x last", sink.placed, u)
			}
			if n := len(sink.delivered); n != len(sink.placed) {
				t.Errorf("%d placed, %d delivered", len(sink.placed), n)
			}
		})
	}
}

// filler is an FPDU that fills the stream up to off.
func filler(f Framing, off int) []byte {
	for n := 0; off > 0; n++ {
		if b := reference(f, 0, make([]byte, n)); len(b) == off {
			return b
		}
	}
	return nil
}

// TestSizes compares Size and the bytes of putFPDU with the reference at all places between two markers.
//
//req:rfc5044-4.1-2 rfc5044-4.3-2
func TestSizes(t *testing.T) {
	for _, f := range []Framing{{}, {CRC: true}, {Markers: true}, {Markers: true, CRC: true}} {
		for off := 0; off < 1024; off += 4 {
			for _, n := range []int{0, 1, 2, 3, 4, 5, 14, 18, 127, 128, 129, 494, 498, 502, 506,
				510, 1000, 1010, 1436} {
				u := make([]byte, n)
				for i := range u {
					u[i] = byte(off + i*7)
				}
				want := reference(f, off, u)
				if got := f.Size(uint64(off), n); got != len(want) {
					t.Fatalf("%+v off %d n %d: Size %d, want %d", f, off, n, got, len(want))
				}
				if got := encode(f, off, u); !bytes.Equal(got, want) {
					t.Fatalf("%+v off %d n %d:\n got %x\nwant %x", f, off, n, got, want)
				}
			}
		}
	}
	u := make([]byte, MaxULPDU)
	f := Framing{Markers: true, CRC: true}
	for off := 0; off < 1024; off += 4 {
		if got, want := encode(f, off, u), reference(f, off, u); !bytes.Equal(got, want) ||
			len(got) > MaxFPDU {
			t.Fatalf("largest FPDU at %d is wrong or has %d bytes", off, len(got))
		}
	}
}

// TestMULPDU checks the formula of RFC 5044 4.5, that its FPDU always fits, and that it leaves at most 7 bytes unused
// where the most markers fall.
//
//req:rfc5044-3-3 rfc5044-4.5-1 rfc5044-4.5-2
func TestMULPDU(t *testing.T) {
	for _, c := range []struct {
		f          Framing
		emss, want int
	}{
		{Framing{}, 1460, 1454}, {Framing{}, 1448, 1442}, {Framing{Markers: true}, 1460, 1442},
		{Framing{Markers: true}, 1448, 1430},
		{Framing{}, 536, 530}, {Framing{Markers: true}, 512, 502}, {Framing{Markers: true}, 513,
			498}, {Framing{}, 8948, 8942},
		{Framing{}, 1449, 1442}, {Framing{}, 100, 128}, {Framing{Markers: true}, 100, 128},
		{Framing{}, 1 << 20, MaxULPDU},
	} {
		if got := c.f.MULPDU(c.emss); got != c.want {
			t.Errorf("markers %v, EMSS %d: MULPDU %d, want %d", c.f.Markers, c.emss, got, c.want)
		}
	}
	for _, f := range []Framing{{}, {Markers: true}} {
		for emss := 150; emss < 9100; emss += 7 {
			n, most := f.MULPDU(emss), 0
			for off := 0; off < 512; off += 4 {
				most = max(most, f.Size(uint64(off), n))
			}
			if most > emss || most < emss-4-3 {
				t.Fatalf("%+v EMSS %d: FPDUs of MULPDU %d have up to %d bytes", f, emss, n, most)
			}
		}
	}
}

// TestDynamicMULPDU checks that the dynamic MULPDU is the longest ULPDU whose FPDU fits at each place of the stream,
// and that nearly all segments of a long stream are full.
//
//req:rfc5044-4.5-1
func TestDynamicMULPDU(t *testing.T) {
	for _, f := range []Framing{{}, {Markers: true}} {
		for room := 12; room < 9100; room += 1 + room/40 {
			for off := uint32(0); off < 2*MarkerInterval; off += 4 {
				n := f.dynamicMULPDU(off, room)
				if n < 0 || f.Size(uint64(off), n) > room || f.Size(uint64(off), n+1) <= room {
					t.Fatalf(
						"%+v: %d bytes at %d: a ULPDU of %d makes %d bytes, one byte more %d", f,
						room, off, n, f.Size(uint64(off), n), f.Size(uint64(off), n+1))
				}
				if least := f.MULPDU(room); n < least && least > MinMULPDU {
					t.Fatalf("%+v: %d bytes at %d: %d is below the MULPDU %d", f, room, off, n,
						least)
				}
			}
		}
	}
	for _, emss := range []int{536, 1447, 1448, 8948} {
		var s Sender
		s.Init(SenderConfig{Framing: Framing{Markers: true}}, 7, emss, &blobSource{})
		short := 0
		for range 1024 {
			n, _ := s.Next(emss)
			if n < emss&^3-MarkerLen || n > emss {
				t.Fatalf("EMSS %d: a segment of %d bytes", emss, n)
			}
			if n < emss&^3 {
				short++
			}
		}
		if short > 1024/16 {
			t.Errorf("EMSS %d: %d of 1024 segments are not full", emss, short)
		}
	}
}
