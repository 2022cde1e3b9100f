package portmapper

import (
	"bytes"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// datagram is a datagram of testdata/iwpmd.pcap. There, iwpmd of Debian 12 (rdma-core 44) with siw at 10.77.0.11 asks
// the iwpmd at 10.77.0.10 for a listener, for a missing one, and for an IPv6 one.
type datagram struct {
	from, to netip.AddrPort
	b        []byte
}

func readCapture(t *testing.T) (list []datagram) {
	t.Helper()
	f, err := os.Open("testdata/iwpmd.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for p := range gopacket.NewPacketSource(r, layers.LayerTypeEthernet).Packets() {
		ip := p.NetworkLayer().NetworkFlow()
		udp := p.TransportLayer().(*layers.UDP)
		src, _ := netip.AddrFromSlice(ip.Src().Raw())
		dst, _ := netip.AddrFromSlice(ip.Dst().Raw())
		list = append(list, datagram{netip.AddrPortFrom(src, uint16(udp.SrcPort)),
			netip.AddrPortFrom(dst, uint16(udp.DstPort)), udp.Payload})
	}
	return list
}

// meaning returns b with zeros in the bytes after an IPv4 address, which iwpmd leaves uninitialized.
func meaning(b []byte) []byte {
	b = bytes.Clone(b)
	for i := 16; b[0]&15 == 4 && i < len(b); i += 16 {
		clear(b[i+4 : i+16])
	}
	return b
}

// TestIWPMD parses datagrams of iwpmd, writes the same bytes, and replies as iwpmd does.
func TestIWPMD(t *testing.T) {
	client := netip.MustParseAddr("10.77.0.11")
	server := netip.MustParseAddr("10.77.0.10")
	client6, server6 := netip.MustParseAddr("fd77::11"), netip.MustParseAddr("fd77::10")
	at := netip.AddrPortFrom
	exchange := func(handle uint64, c netip.Addr, port uint16, s netip.Addr, listener uint16,
		types ...Type) (list []Message) {
		for _, k := range types {
			m := Message{Type: k, Handle: handle, Accepting: at(s, listener),
				Connecting: at(c, port)}
			if k == Request {
				m.Mapped = m.Connecting
			}
			list = append(list, m)
		}
		return list
	}
	want := exchange(0x557af5227a70, client, 34673, server, 7180, Request, Accept, Ack)
	want = append(want, exchange(0x557af5228150, client, 55231, server, 7181, Request, Reject)...)
	want = append(want, exchange(0x557af5228630, client6, 35853, server6, 7182, Request, Accept,
		Ack)...)
	rules := Rules{
		Listens: func(l netip.AddrPort) bool {
			return l == at(server, 7180) || l == at(server6, 7182)
		},
		Admits: func(netip.Addr) bool { return true },
	}
	var m Mapper
	list := readCapture(t)
	if len(list) != len(want) {
		t.Fatalf("%d datagrams", len(list))
	}
	for i, d := range list {
		got, err := Parse(d.b)
		if err != nil || got != want[i] {
			t.Errorf("datagram %d: %+v, %v\nwant %+v", i, got, err, want[i])
		}
		if b := got.Append(nil); !bytes.Equal(b, meaning(d.b)) {
			t.Errorf("datagram %d:\n% x, written again\n% x", i, meaning(d.b), b)
		}
		answer := m.answer(&rules, d.b, d.from.Addr(), d.to.Addr(), time.Now())
		if got.Type == Request && !bytes.Equal(answer, meaning(list[i+1].b)) {
			t.Errorf("datagram %d is answered\n% x, by iwpmd\n% x", i, answer, list[i+1].b)
		}
	}
	if c := (Counters{RequestsIn: 3, AcceptsOut: 2, RejectsOut: 1, AcksIn: 2, Malformed: 3}); m.
		Counters() != c {
		t.Errorf("%+v", m.Counters())
	}
}
