package ring

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// datagram returns a UDP/IPv4 frame from 10.99.0.1 to 10.99.0.2:9 with the pseudo-header's sum as its
// checksum, which is what offload starts from; no receiver takes it as it is.
func datagram(dst net.HardwareAddr, payload []byte) []byte {
	b := make([]byte, 14+20+8, 14+20+8+len(payload))
	copy(b, dst)
	copy(b[6:], []byte{2, 0, 0, 0, 0, 1, 8, 0})
	ip, udp := b[14:34], b[34:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2})
	n := uint16(8 + len(payload))
	binary.BigEndian.PutUint16(ip[2:], 20+n)
	binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip))
	copy(udp, []byte{0, 9, 0, 9})
	binary.BigEndian.PutUint16(udp[4:], n)
	pseudo := append(append([]byte{}, ip[12:20]...), 0, 17, byte(n>>8), byte(n))
	binary.BigEndian.PutUint16(udp[6:], onesSum(pseudo))
	return append(b, payload...)
}

// onesSum is the sum of RFC 1071 over an even number of octets.
func onesSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}

// The kernel's UDP at the other end takes a frame with offloaded checksum and drops the same frame without.
func TestVethChecksumOffload(t *testing.T) {
	a, b := newPair(t, 3506)
	a.attach(t)
	s := a.open(t, Config{RxFrames: 64, TxSlots: 64, TxChecksum: true})
	if s.Info().TxRoom != ChunkSize-24 {
		t.Errorf("room %d", s.Info().TxRoom)
	}
	var conn *net.UDPConn
	var mac net.HardwareAddr
	b.link(t, func(l netlink.Link) (err error) {
		addr, _ := netlink.ParseAddr("10.99.0.2/24")
		if err = netlink.AddrAdd(l, addr); err != nil {
			return err
		}
		mac = l.Attrs().HardwareAddr
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 99, 0, 2), Port: 9})
		return err
	})
	defer conn.Close()
	for _, n := range []int{64, 1400, 3400} {
		for _, offload := range []bool{false, true} {
			buf, _ := s.AllocTx()
			payload := make([]byte, n)
			payload[0] = 1
			if offload {
				payload[0] = 2
				buf.Checksum(34, 6)
			}
			s.Send(buf, copy(buf.Data, datagram(mac, payload)))
		}
		if st := s.Flush(); st != StateOK {
			t.Fatal(st)
		}
		got := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		m, _, err := conn.ReadFromUDP(got)
		if err != nil || m != n || got[0] != 2 {
			t.Errorf("%d octets: received %d, marked %d, %v; want the offloaded one only", n, m,
				got[0], err)
		}
		eventually(t, "both complete", func() bool { s.Reap(); return s.InFlight() == 0 })
		audit(t, s, nil)
	}
	if st := s.Stats(); st.KernelTxInvalid != 0 {
		t.Errorf("%+v", st)
	}
}
