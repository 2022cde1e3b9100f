package lab

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/fixtures.txt")

// opcodes are the names of RDMAP's opcodes (RFC 5040, figure 4) by their numbers.
var opcodes = []string{"Write", "ReadRequest", "ReadResponse", "Send", "SendInv", "SendSE",
	"SendSEInv", "Terminate"}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TestFixtures walks from FPDU to FPDU of each stream by the ULPDU length (RFC 5044, figure 3), checks every CRC, and
// compares the counts with testdata/fixtures.txt.
func TestFixtures(t *testing.T) {
	files, err := fs.Glob(Files, "testdata/*.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".pcap")
		conns, err := Read(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, c := range conns {
			for _, half := range []struct {
				name string
				*Half
			}{{"up", &c.Up}, {"down", &c.Down}} {
				text, err := inspect(half.Half)
				if err != nil {
					t.Errorf("%s, connection %d %s: %v", name, i, half.name, err)
				}
				fmt.Fprintf(&list, "%s %d %-4s %s\n", name, i, half.name, text)
			}
		}
	}
	if *update {
		if err := os.WriteFile("testdata/fixtures.txt", []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/fixtures.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(list.String(),
		"\n")); d != "" {
		t.Errorf("the captures differ from testdata/fixtures.txt:\n%s", d)
	}
}

// inspect returns as text the start-up flags and revision of a half and its numbers of bytes, of segments, of segments
// that do not begin with an FPDU, and of FPDUs by opcode.
func inspect(h *Half) (string, error) {
	frame, rest, err := h.Startup()
	if err != nil {
		return "", err
	}
	starts := map[int]bool{0: true} // stream offsets
	count := map[byte]int{}
	for off := 0; off < len(rest); {
		starts[len(frame)+off] = true
		b := rest[off:]
		n := int(binary.BigEndian.Uint16(b))
		whole := (2+n+3)&^3 + 4
		if n < 14 || whole > len(b) {
			return "", fmt.Errorf("no FPDU at byte %d: %x", off, b[:min(len(b), 16)])
		}
		if got, want := binary.LittleEndian.Uint32(b[whole-4:]), crc32.Checksum(b[:whole-4],
			castagnoli); got != want {
			return "", fmt.Errorf("FPDU at byte %d: CRC %08x, computed %08x", off, got, want)
		}
		count[b[3]&15]++
		off += whole
	}
	unaligned := 0
	for _, s := range h.Segments {
		if !starts[s.Off] {
			unaligned++
		}
	}
	text := fmt.Sprintf("flags %02x rev %d: %d bytes in %d segments, %d unaligned;", frame[16],
		frame[17], len(h.Stream), len(h.Segments), unaligned)
	for _, op := range slices.Sorted(maps.Keys(count)) {
		if int(op) >= len(opcodes) {
			return "", fmt.Errorf("opcode %d", op)
		}
		text += fmt.Sprintf(" %s %d", opcodes[op], count[op])
	}
	return text, nil
}
