// Package ip encodes and decodes Ethernet, IPv4 and IPv6 headers, decodes the ICMP errors that quote TCP or ESP, and
// reassembles fragments. No function panics on input from a network; Put functions panic when the caller's buffer is
// too short.
package ip

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Addr is an IPv6 address, or an IPv4 address in the form ::ffff:a.b.c.d. It is comparable.
type Addr [16]byte

// AddrFrom4 returns the IPv4 address a.
func AddrFrom4(a [4]byte) Addr {
	var r Addr
	r[10], r[11] = 0xff, 0xff
	copy(r[12:], a[:])
	return r
}

// Is4 reports whether a is an IPv4 address.
func (a *Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[:8]) == 0 && binary.BigEndian.Uint32(a[8:12]) == 0xffff
}

// As4 returns the four bytes of a, which must be an IPv4 address.
func (a *Addr) As4() [4]byte { return [4]byte(a[12:]) }

// IsUnspecified reports whether a is 0.0.0.0 or ::.
func (a *Addr) IsUnspecified() bool {
	return *a == Addr{} || a.Is4() && binary.BigEndian.Uint32(a[12:]) == 0
}

// IsMulticast reports whether a is a multicast address, or the IPv4 limited broadcast address.
func (a *Addr) IsMulticast() bool {
	if a.Is4() {
		return a[12]>>4 == 0xe || binary.BigEndian.Uint32(a[12:]) == 0xffffffff
	}
	return a[0] == 0xff
}

// String returns dotted decimal for IPv4, and the eight groups without zero compression for IPv6.
func (a Addr) String() string {
	if a.Is4() {
		return fmt.Sprintf("%d.%d.%d.%d", a[12], a[13], a[14], a[15])
	}
	s := ""
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			s += ":"
		}
		s += strconv.FormatUint(uint64(binary.BigEndian.Uint16(a[i:])), 16)
	}
	return s
}
