package ring

import (
	"encoding/binary"
	"fmt"
)

// Policy says by which fields of a frame a bond chooses the member that sends it: xmit_hash_policy in the kernel's
// Documentation/networking/bonding.rst. The values are those of netlink's IFLA_BOND_XMIT_HASH_POLICY. TCP is never
// encapsulated here, so the policies encap2+3 and encap3+4 do the same as layer2+3 and layer3+4.
type Policy uint8

const (
	PolicyLayer2 Policy = iota
	PolicyLayer34
	PolicyLayer23
	PolicyEncap23
	PolicyEncap34
	PolicyVLANSrcMAC
)

var policyNames = [...]string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4",
	"vlan+srcmac"}

// String returns the name that ip-link(8) uses.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeVLAN = 0x8100
	protoTCP = 6
	protoESP = 50
)

// hash returns the kernel's hash of a frame with at least an Ethernet header. Unknown policies count as layer3+4.
func (p Policy) hash(b []byte) uint32 {
	kind, at, vlan := binary.BigEndian.Uint16(b[12:]), ethHeader, uint32(0)
	if kind == typeVLAN && len(b) >= at+4 {
		vlan, kind, at = uint32(binary.BigEndian.Uint16(b[14:])), binary.BigEndian.Uint16(b[16:]),
			at+4
	}
	ethernet := uint32(b[5]) ^ uint32(b[11]) ^ uint32(kind)
	switch p {
	case PolicyLayer2:
		return ethernet
	case PolicyVLANSrcMAC:
		return vlan ^ (uint32(b[6])<<16 | uint32(b[7])<<8 | uint32(b[8])) ^
			(uint32(b[9])<<16 | uint32(b[10])<<8 | uint32(b[11]))
	}
	addrs, ports, ok := flowOf(kind, b[at:])
	switch {
	case !ok:
		return ethernet
	case p == PolicyLayer23, p == PolicyEncap23:
		return fold(ethernet ^ addrs)
	}
	return fold(ports^addrs) >> 1 // ports are often even
}

func fold(h uint32) uint32 {
	h ^= h >> 16
	return h ^ h>>8
}

// flowOf returns the combination of the addresses of the IP packet b, and its ports, or the SPI of ESP. Both are in the
// byte order of the host, as the kernel reads them. ok is false if b is not an IP packet.
func flowOf(kind uint16, b []byte) (addrs, ports uint32, ok bool) {
	proto, transport := byte(0), 0
	switch {
	case kind == typeIPv4 && len(b) >= 20:
		addrs = words(b[12:20])
		if binary.BigEndian.Uint16(b[6:])&0x3fff == 0 { // not a fragment
			proto, transport = b[9], int(b[0]&15)*4
		}
	case kind == typeIPv6 && len(b) >= 40:
		addrs, proto, transport = words(b[8:40]), b[6], 40
	default:
		return 0, 0, false
	}
	if (proto == protoTCP || proto == protoESP) && len(b) >= transport+4 {
		ports = binary.NativeEndian.Uint32(b[transport:])
	}
	return addrs, ports, true
}

// words returns the exclusive or of the 32-bit words of b.
func words(b []byte) (x uint32) {
	for ; len(b) >= 4; b = b[4:] {
		x ^= binary.NativeEndian.Uint32(b)
	}
	return x
}
