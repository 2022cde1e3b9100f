package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"xwarp/scripts/lab"
)

// packets is the interface that both pcapgo readers implement, for pcap and for pcapng.
type packets interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// readCapture decodes every MPA connection in a pcap or pcapng file, in the order of their SYNs. Connections without a
// complete start-up are left out.
func readCapture(file string) ([]*session, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if b, err = toPcap(b); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	conns, err := lab.Parse(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var list []*session
	for _, c := range conns {
		if len(c.Up.Stream) == 0 || len(c.Down.Stream) == 0 {
			continue
		}
		s, err := decode(c)
		if err != nil {
			return list, fmt.Errorf("%s: %v to %v: %w", file, c.Client, c.Server, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// packetsIn decodes the packets of a pcap file.
func packetsIn(t *testing.T, file string) (list []gopacket.Packet) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for p := range gopacket.NewPacketSource(r, r.LinkType()).Packets() {
		list = append(list, p)
	}
	return list
}

// toPcap converts a pcapng file to pcap. It returns other input unchanged.
func toPcap(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		return b, nil
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	if err := w.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		return nil, err
	}
	for {
		data, info, err := packets(r).ReadPacketData()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		info.InterfaceIndex = 0
		if err := w.WritePacket(info, data); err != nil {
			return nil, err
		}
	}
}

// piece is one segment that recut writes: bytes [off, end) of the TCP stream of its direction.
type piece struct {
	at       time.Duration // time of the capture of its last byte
	up       bool          // from client to server
	off, end int
}

// recut writes the connections that were not rejected to a new pcap file. The bytes and their sequence numbers are the
// same, but each start-up frame and each FPDU is in a segment of its own. FPDUs that tshark cannot read are left out.
func recut(list []*session, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := pcapgo.NewWriterNanos(f)
	if err := w.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		return err
	}
	for _, s := range list {
		if s.rejected() {
			continue
		}
		if err := s.write(w); err != nil {
			return err
		}
	}
	return f.Close()
}

func (s *session) write(w *pcapgo.Writer) error {
	for _, syn := range []bool{true, false} {
		if err := s.segment(w, 0, syn, true, nil, -1); err != nil {
			return err
		}
	}
	for _, p := range s.pieces() {
		h := &s.conn.Down
		if p.up {
			h = &s.conn.Up
		}
		if err := s.segment(w, p.at, p.up, false, h.Stream[p.off:p.end], p.off); err != nil {
			return err
		}
	}
	return nil
}

// pieces returns the segments of both directions that recut writes, in the order of capture.
func (s *session) pieces() (list []piece) {
	for i, h := range []*lab.Half{&s.conn.Up, &s.conn.Down} {
		d := &s.half[i]
		add := func(off, n int) {
			list = append(list, piece{when(h, off+n-1), i == 0, off, off + n})
		}
		add(0, d.start)
		for _, f := range d.fpdus {
			if !unreadableByTshark(d, f) {
				add(d.start+f.off, f.n)
			}
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].at < list[j].at })
	return list
}

// hasRetransmission reports whether bytes of a stream were captured more than once.
func (s *session) hasRetransmission() bool {
	for _, h := range []*lab.Half{&s.conn.Up, &s.conn.Down} {
		n := 0
		for _, p := range h.Segments {
			n += len(p.Payload)
		}
		if n > len(h.Stream) {
			return true
		}
	}
	return false
}

// when returns the time at which the byte at offset off of the stream was captured first.
func when(h *lab.Half, off int) time.Duration {
	for _, s := range h.Segments {
		if s.Off <= off && off < s.Off+len(s.Payload) {
			return s.Time
		}
	}
	return 0
}

// segment writes one frame: a SYN if syn, otherwise the payload, which is at offset off of its direction's stream.
func (s *session) segment(w *pcapgo.Writer, at time.Duration, up, syn bool, payload []byte,
	off int) error {
	from, to := s.conn.Client, s.conn.Server
	h, other := &s.conn.Up, &s.conn.Down
	if !up {
		from, to = to, from
		h, other = other, h
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Window: 65535,
		Seq: h.Start + uint32(off), Ack: other.Start, ACK: !syn || !up, SYN: syn,
	}
	if !tcp.ACK {
		tcp.Ack = 0
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	eth := &layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer
	if from.Addr().Is4() {
		v4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: ipOf(from),
			DstIP: ipOf(to)}
		tcp.SetNetworkLayerForChecksum(v4)
		ip = v4
	} else {
		v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: ipOf(from), DstIP: ipOf(to)}
		eth.EthernetType = layers.EthernetTypeIPv6
		tcp.SetNetworkLayerForChecksum(v6)
		ip = v6
	}
	buf := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, o, eth, ip, tcp,
		gopacket.Payload(payload)); err != nil {
		return err
	}
	info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0).Add(at),
		CaptureLength: len(buf.Bytes()), Length: len(buf.Bytes())}
	return w.WritePacket(info, buf.Bytes())
}

func ipOf(a netip.AddrPort) net.IP { return a.Addr().AsSlice() }

// unreadableByTshark reports whether tshark 4.0 cannot read an FPDU even if it is alone in a segment: that is so if it
// ends where a marker is due. tshark counts that marker, which belongs to the next FPDU, as part of this one. From then
// on it finds no FPDU.
func unreadableByTshark(h *half, f fpdu) bool { return h.markers && (f.off+f.n)%markerEvery == 0 }
