package interop

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/scripts/lab"
)

func fixture(t *testing.T, name string) (file string, data []byte) {
	t.Helper()
	data, err := lab.Files.ReadFile("testdata/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), name+".pcap")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file, data
}

// TestDecodeFixtures lets both decoders, tshark and this package's reader, read captures of siw talking to siw.
func TestDecodeFixtures(t *testing.T) {
	file, _ := fixture(t, "rping-ipv4-4096")
	if err := judge(file, "", "Write", "Read Request", "Read Response", "Send"); err != nil {
		t.Error(err)
	}
	file, _ = fixture(t, "ucmatose-ipv6")
	if err := judge(file, "", "Send"); err != nil {
		t.Error(err)
	}
}

// TestDecodersFindFaults changes one byte of a Write's payload. Both decoders must report a wrong CRC.
func TestDecodersFindFaults(t *testing.T) {
	file, data := fixture(t, "rping-ipv4-64")
	i := bytes.LastIndex(data, []byte("rdma-ping-9: "))
	data[i]++
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readCapture(file); err == nil || !strings.Contains(err.Error(), "CRC ") {
		t.Errorf("our reader: %v", err)
	}
	got, err := tshark(file, 0)
	if err != nil || got.bad != 1 || got.good == 0 {
		t.Errorf("tshark: %+v, %v", got, err)
	}
}

// TestWalk reads the two FPDUs with markers of RFC 5044 (figures 5 and 6), and variants with one error each.
//
//req:rfc5044-4.2-1 rfc5044-4.3-5
func TestWalk(t *testing.T) {
	zero := strings.Repeat("00", 24)
	first := unhex(t, "00000000 002a4143 00000000 00000000 00000001 00000000"+zero+"52239983")
	second := unhex(t, "002a4143 00000000 00000000 00000002 00000000 00000014"+zero+"84925898")
	f, err := readFPDU(first, 0, true, true)
	if err != nil || f.n != 52 || f.opcode != 3 || len(f.ulpdu) != 42 {
		t.Errorf("the first: %+v, %v", f, err)
	}
	at := append(make([]byte, 0x1ec), second...)
	if f, err := readFPDU(at, 0x1ec, true, true); err != nil || f.n != 52 || len(f.ulpdu) != 42 {
		t.Errorf("the second: %+v, %v", f, err)
	}
	for _, tc := range []struct {
		name      string
		byteIndex int
		want      string
	}{{"marker", 3, "marker"}, {"CRC", 51, "CRC"}, {"payload", 40, "CRC"},
		{"length", 5, "cut off"}} {
		b := bytes.Clone(first)
		b[tc.byteIndex] ^= 0x10
		if _, err := walk(b, true, true); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("wrong %s: %v", tc.name, err)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
