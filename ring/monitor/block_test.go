package monitor

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/ring"
)

// blockPort accepts blocks and keeps the last one.
type blockPort struct {
	ring.Port
	sent []byte
}

func (p *blockPort) Block() []byte { return make([]byte, 1<<16) }

func (p *blockPort) SendBlock(b []byte, _ ring.Shape) { p.sent = bytes.Clone(b) }

// TestBlock: a capture shows the segments of a block, with the lengths and checksums that gopacket computes. The Port
// below gets the block uncut.
func TestBlock(t *testing.T) {
	h := newHost(t)
	below := &blockPort{Port: h.p.Port}
	p := h.hub.Wrap(below, "eth0 queue 1")
	c := h.start(Config{})
	payload := bytes.Repeat([]byte("0123456789"), 250)
	whole := frame(t, us, them, "A", string(payload), 0)
	shape := ring.Shape{IPAt: 14, Headers: len(whole) - len(payload), Payload: 1000}
	mem := p.Block()
	p.SendBlock(mem[:copy(mem, whole)], shape)
	if !bytes.Equal(below.sent, whole) {
		t.Error("the block does not go on as it is")
	}
	for i, n := range []int{1000, 1000, 500} {
		f, ok := c.Poll()
		if !ok {
			t.Fatalf("segment %d is not captured", i)
		}
		k := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
		ip, tcp := k.Layer(layers.LayerTypeIPv4).(*layers.IPv4), k.Layer(
			layers.LayerTypeTCP).(*layers.TCP)
		if f.Direction != Tx || int(tcp.Seq) != i*1000 || ip.Id != uint16(i) ||
			!bytes.Equal(tcp.Payload, payload[i*1000:i*1000+n]) {
			t.Errorf("segment %d: %v", i, k)
		}
		tcp.SetNetworkLayerForChecksum(ip)
		again := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializePacket(again, gopacket.SerializeOptions{FixLengths: true,
			ComputeChecksums: true}, k); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), f.Data) {
			t.Errorf("segment %d is\n%x, want\n%x", i, f.Data, again.Bytes())
		}
	}
	if f, ok := c.Poll(); ok {
		t.Errorf("and %x", f.Data)
	}
}
