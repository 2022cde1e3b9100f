package esp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// TestOpenReadsLinux decrypts packets that Linux 6.1 (Debian 12, esp4, rfc4106(gcm(aes)), ESN) sent for soft-iWARP over
// an SA with an all-zero key of 128 bits: testdata/linux-esn.pcap, whose sequence numbers have gaps. The checksum of
// each inner segment must be right.
func TestOpenReadsLinux(t *testing.T) {
	f, err := os.Open("testdata/linux-esn.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	_, in := pair(t, SA{ESN: true, Keymat: make([]byte, 20)}, 0, 1)
	frames, payload := 0, 0
	for {
		b, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		var h ip.Header
		off, err := h.Decode(b[ip.EthernetLen:])
		if err != nil || h.Proto != ip.ProtoESP {
			t.Fatalf("frame %d: protocol %d, %v", frames, h.Proto, err)
		}
		packet := b[ip.EthernetLen+off:][:h.PayloadLen]
		if spi, ok := PacketSPI(packet); !ok || spi != in.SPI() {
			t.Fatalf("frame %d: SPI %#x", frames, spi)
		}
		segment, next, err := in.Open(packet)
		if err != nil || next != ip.ProtoTCP {
			t.Fatalf("frame %d: next header %d, %v", frames, next, err)
		}
		h.Proto = ip.ProtoTCP
		if !wire.Right(wire.Sum(segment, h.PseudoSum(len(segment)))) {
			t.Errorf("frame %d: the TCP checksum is wrong", frames)
		}
		if Overhead(len(segment)) != len(packet)-len(segment) {
			t.Errorf("frame %d: %d bytes of overhead for %d, want %d", frames,
				len(packet)-len(segment), len(segment), Overhead(len(segment)))
		}
		frames++
		payload += len(segment)
	}
	if packets, n := in.Used(); frames != 19 || packets != 19 || n != uint64(payload) {
		t.Errorf("%d frames, %d opened with %d bytes of %d", frames, packets, n, payload)
	}
}

// TestTsharkReadsUs decrypts packets of each kind with tshark, which must find every segment by its sequence number.
// The version of Debian 12 verifies ICVs of SAs without ESN only, and reports the others as wrong.
func TestTsharkReadsUs(t *testing.T) {
	type kind struct {
		sa    SA
		first uint64
		v6    bool // the inner packet, and the outer one of a tunnel
	}
	kinds := []kind{
		{SA{SPI: 0x1001, Keymat: random(20)}, 1, false},
		{SA{SPI: 0x1002, Keymat: random(36)}, 1, true},
		{SA{SPI: 0x1003, Keymat: random(20), ESN: true}, 1<<32 - 5, false},
		{SA{SPI: 0x1004, Keymat: random(36), Mode: Tunnel}, 1<<32 - 20, true},
		{SA{SPI: 0x1005, Keymat: random(20), Mode: Tunnel, ESN: true}, 1, false},
	}
	file := filepath.Join(t.TempDir(), "esp.pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", file, "-o", "esp.enable_encryption_decode:TRUE",
		"-o", "esp.enable_authentication_check:TRUE", "-T", "fields", "-E", "separator=;",
		"-e", "esp.spi", "-e", "tcp.seq_raw", "-e", "esp.icv_good", "-e", "tcp.len"}
	var want []string
	for _, k := range kinds {
		version := "IPv4"
		if k.v6 {
			version = "IPv6"
		}
		args = append(args, "-o", fmt.Sprintf(`uat:esp_sa:"%s","*","*","0x%08x",`+
			`"AES-GCM with 16 octet ICV [RFC4106]","0x%s","NULL",""`, version, k.sa.SPI,
			hex.EncodeToString(k.sa.Keymat)))
		out, _ := pair(t, k.sa, 0, k.first)
		for i := range 20 {
			frame := tcpFrame(t, out, k.sa.Mode, k.v6, uint32(1000+i), i*70)
			if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0),
				CaptureLength: len(frame), Length: len(frame)}, frame); err != nil {
				t.Fatal(err)
			}
			icv := "1"
			if k.sa.ESN {
				icv = "0"
			}
			want = append(want, fmt.Sprintf("0x%08x;%d;%s;%d", k.sa.SPI, 1000+i, icv, i*70))
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v (apt-get install tshark)\n%s", err, &stderr)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(got) != len(want) {
		t.Fatalf("tshark lists %d packets of %d:\n%s\n%s", len(got), len(want), text, &stderr)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("packet %d: tshark reads %s, want %s (SPI; sequence number; ICV; payload)", i,
				got[i], want[i])
		}
	}
}

// tcpFrame returns a frame with a TCP segment between two hosts, sealed.
func tcpFrame(t *testing.T, out *Out, mode Mode, v6 bool, seq uint32, n int) []byte {
	t.Helper()
	h := ip.Header{V6: v6, TTL: 64, DF: true, Proto: ip.ProtoTCP}
	from, to, etherType := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
		ip.TypeIPv4
	if v6 {
		from, to = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		etherType = ip.TypeIPv6
	}
	h.Src, h.Dst = from.As16(), to.As16()
	header := wire.Header{SrcPort: 40000, DstPort: 4791, Flags: wire.ACK, Window: 100}
	header.Seq = header.Seq.Add(int(seq))
	segment := make([]byte, wire.HeaderLen+n)
	header.Put(segment)
	wire.PutChecksum(segment, wire.Finish(wire.Sum(segment, h.PseudoSum(len(segment)))))
	payload, next := segment, uint8(ip.ProtoTCP)
	if mode == Tunnel {
		h.PayloadLen, next = len(segment), NextIPv4
		if v6 {
			next = NextIPv6
		}
		payload = make([]byte, h.Len()+len(segment))
		copy(payload[h.Put(payload):], segment)
	}
	packet := sealed(t, out, payload, next)
	h.Proto, h.PayloadLen = ip.ProtoESP, len(packet)
	e := ip.Ethernet{Dst: ip.MAC{2, 0, 0, 0, 0, 2}, Src: ip.MAC{2, 0, 0, 0, 0, 1}, Type: etherType}
	frame := make([]byte, e.Len()+h.Len()+len(packet))
	e.Put(frame)
	h.Put(frame[e.Len():])
	copy(frame[e.Len()+h.Len():], packet)
	return frame
}
