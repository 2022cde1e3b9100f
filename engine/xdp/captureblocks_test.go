package xdp_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"xwarp/bench/topo"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/monitor"
	"xwarp/ring/pcapng"
)

// TestCaptureShowsWholeBlocks: a capture and a trace of the received packets have each block whole, and it can be
// decoded: its headers have its length, and its payload is whole FPDUs with correct CRCs.
func TestCaptureShowsWholeBlocks(t *testing.T) {
	var trace bytes.Buffer
	file, hub := pcapng.NewFile(&trace), monitor.NewHub(nil)
	da, db, net := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
		c.Transmit, c.MPA = xdp.TransmitAuto, verbs.MPAWith(false, true)
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
			now := func() int64 { return time.Now().UnixNano() }
			return file.Wrap(hub.Wrap(p, ""), "", pcapng.Rx, now)
		}
	})
	const size = 2 << 20 // less than the ring of the capture holds
	a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
	capture, err := hub.Start(monitor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	verbstest.Exercise(t, a, b)
	da.Close()
	db.Close()
	captured := 0
	for f, ok := capture.Poll(); ok; f, ok = capture.Poll() {
		if f.Direction == monitor.Rx && isBlock(t, f.Data) {
			captured++
		}
	}
	traced := 0
	r, err := pcapgo.NewNgReader(&trace, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if isBlock(t, data) {
			traced++
		}
	}
	t.Logf("%d blocks captured, %d traced", captured, traced)
	if captured != traced || traced < 20 {
		t.Errorf("%d blocks captured, %d traced", captured, traced)
	}
}

// isBlock reports whether a frame is a block: much longer than the MTU. It fails the test if a block cannot be decoded.
func isBlock(t *testing.T, frame []byte) bool {
	t.Helper()
	if len(frame) < 4000 {
		return false
	}
	k := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	ip, isIP := k.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	tcp, isTCP := k.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !isIP || !isTCP || int(ip.Length) != len(frame)-14 || k.Metadata().Truncated {
		t.Errorf("a block of %d bytes is %v", len(frame), k)
		return true
	}
	const crc = 4
	for left := tcp.Payload; len(left) > 0; { // RFC 5044, 4: length, ULPDU, padding to 4 bytes, CRC
		if len(left) < 2 {
			t.Errorf("a block of %d bytes ends within an FPDU", len(frame))
			break
		}
		n := (2 + int(binary.BigEndian.Uint16(left)) + 3) &^ 3
		if len(left) < n+crc || crc32.Checksum(left[:n], crc32.MakeTable(crc32.Castagnoli)) !=
			binary.LittleEndian.Uint32(left[n:]) {
			t.Errorf("a block of %d bytes has no whole FPDU %d bytes before its end", len(frame),
				len(left))
			break
		}
		left = left[n+crc:]
	}
	return true
}
