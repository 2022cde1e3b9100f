package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// expect has the header fields that all incoming frames of a connection share: to this host's MAC address, in its VLAN,
// with an unfragmented TCP datagram between the two hosts (or ESP, if protected), without IP options and extension
// headers.
type expect struct {
	mask, value [expectLen / 8]uint64 // of the first expectLen bytes, as words; value is masked
	ipAt        int
	v6          bool
}

// expectLen is the length of the headers of Ethernet with a tag and IPv6, in bytes, rounded up to words of 8.
// expectLen4 is that with IPv4.
const (
	expectLen  = (ip.EthernetLen + ip.VLANTagLen + ip.Len6 + 7) &^ 7
	expectLen4 = (ip.EthernetLen + ip.VLANTagLen + ip.Len4 + 7) &^ 7
)

func (x *expect) init(cfg *Config, t *tcp.Tuple, proto uint8) {
	*x = expect{ipAt: ip.EthernetLen, v6: !t.Remote.Is4()}
	var mask, value [expectLen]byte
	know := func(at int, bits byte, data ...byte) {
		for i, v := range data {
			mask[at+i], value[at+i] = bits, v
		}
	}
	know(0, 0xff, cfg.MAC[:]...)
	if cfg.VLAN != 0 { // with any priority
		know(12, 0xff, byte(ip.TypeVLAN>>8), byte(ip.TypeVLAN&0xff), 0, byte(cfg.VLAN))
		mask[14], value[14] = maxVLAN>>8, byte(cfg.VLAN>>8)
		x.ipAt += ip.VLANTagLen
	}
	if h := x.ipAt; x.v6 {
		know(h-2, 0xff, byte(ip.TypeIPv6>>8), byte(ip.TypeIPv6&0xff))
		know(h, 0xf0, 6<<4)
		know(h+6, 0xff, proto)
		know(h+8, 0xff, append(t.Remote[:], t.Local[:]...)...)
	} else {
		know(h-2, 0xff, byte(ip.TypeIPv4>>8), byte(ip.TypeIPv4&0xff), 4<<4|ip.Len4/4)
		know(h+6, 0x3f, 0) // no fragment follows
		know(h+7, 0xff, 0) // and none precedes
		know(h+9, 0xff, proto)
		know(h+12, 0xff, append(t.Remote[12:], t.Local[12:]...)...)
	}
	for i := range x.mask {
		x.mask[i] = binary.LittleEndian.Uint64(mask[8*i:])
		x.value[i] = binary.LittleEndian.Uint64(value[8*i:])
	}
}

// matches reports whether the frame of n bytes that begins with b has the expected fields, ends where its IP packet
// ends, and has a correct IPv4 checksum. It returns the ECN bits.
func (x *expect) matches(b []byte, n int) (ecn tcp.ECN, ok bool) {
	if len(b) < expectLen4 {
		return 0, false
	}
	word := func(i int) uint64 {
		return (binary.LittleEndian.Uint64(b[8*i:]) ^ x.value[i]) & x.mask[i]
	}
	if word(0)|word(1)|word(2)|word(3)|word(4) != 0 {
		return 0, false
	}
	h, n := b[x.ipAt:], n-x.ipAt
	if x.v6 {
		return tcp.ECN(h[1] >> 4 & 3), len(b) >= expectLen && word(5)|word(6)|word(7) == 0 &&
			int(binary.BigEndian.Uint16(h[4:]))+ip.Len6 == n
	}
	v := (*[ip.Len4]byte)(h)
	sum, c := bits.Add64(binary.LittleEndian.Uint64(v[0:]), binary.LittleEndian.Uint64(v[8:]), 0)
	sum, c = bits.Add64(sum, uint64(binary.LittleEndian.Uint32(v[16:])), c)
	return tcp.ECN(v[1] & 3), int(binary.BigEndian.Uint16(v[2:])) == n && wire.Right(sum+c)
}
