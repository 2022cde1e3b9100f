package ip

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MAC is an Ethernet address.
type MAC [6]byte

// String returns the six bytes in hexadecimal, separated by colons.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// EtherType is the protocol behind an Ethernet header.
type EtherType uint16

const (
	TypeIPv4  EtherType = 0x0800
	TypeIPv6  EtherType = 0x86dd
	TypeVLAN  EtherType = 0x8100 // IEEE 802.1Q C-tag
	TypeVLANS EtherType = 0x88a8 // IEEE 802.1ad S-tag
	maxVLAN             = 2
)

// Lengths in bytes of an Ethernet header without VLAN tags, and of one tag.
const (
	EthernetLen = 14
	VLANTagLen  = 4
)

// VLANTag is one VLAN tag. TPID is the EtherType that announces it; TCI holds priority, DEI and VLAN identifier.
type VLANTag struct {
	TPID EtherType
	TCI  uint16
}

// ID returns the VLAN identifier.
func (v VLANTag) ID() uint16 { return v.TCI & 0xfff }

// Ethernet is a decoded Ethernet II header with up to two VLAN tags.
//
//	+--------+--------+-----------------+------+
//	| Dst 6  | Src 6  | (TPID 2, TCI 2)*| Type |
//	+--------+--------+-----------------+------+
type Ethernet struct {
	Dst, Src MAC
	NVLAN    uint8
	VLAN     [maxVLAN]VLANTag
	Type     EtherType
}

// Errors of the decoders: this stack cannot process the packet.
var (
	ErrShort     = errors.New("ip: packet is shorter than its headers say")
	ErrVLAN      = errors.New("ip: more than two VLAN tags")
	ErrVersion   = errors.New("ip: version is neither 4 nor 6")
	ErrHeader    = errors.New("ip: header length is wrong")
	ErrChecksum  = errors.New("ip: IPv4 header checksum is wrong")
	ErrExtension = errors.New("ip: IPv6 extension headers: too many, misplaced or unknown")
	ErrSource    = errors.New("ip: source or destination address cannot be a TCP peer's")
	ErrICMP      = errors.New("ip: not an ICMP error that quotes TCP")
)

// Decode sets e from the header at the start of b and returns the offset of the packet behind it.
func (e *Ethernet) Decode(b []byte) (off int, err error) {
	if len(b) < EthernetLen {
		return 0, ErrShort
	}
	e.Dst, e.Src = MAC(b[0:6]), MAC(b[6:12])
	e.NVLAN = 0
	off = 12
	for {
		t := EtherType(binary.BigEndian.Uint16(b[off:]))
		if t != TypeVLAN && t != TypeVLANS {
			e.Type = t
			return off + 2, nil
		}
		if e.NVLAN == maxVLAN {
			return 0, ErrVLAN
		}
		if len(b) < off+VLANTagLen+2 {
			return 0, ErrShort
		}
		e.VLAN[e.NVLAN] = VLANTag{TPID: t, TCI: binary.BigEndian.Uint16(b[off+2:])}
		e.NVLAN++
		off += VLANTagLen
	}
}

// Len returns the number of bytes that Put writes.
func (e *Ethernet) Len() int { return EthernetLen + int(e.NVLAN)*VLANTagLen }

// Put writes e to b, which must have room for Len bytes, and returns the number of bytes written.
func (e *Ethernet) Put(b []byte) int {
	copy(b[0:6], e.Dst[:])
	copy(b[6:12], e.Src[:])
	n := 12
	for _, v := range e.VLAN[:e.NVLAN] {
		binary.BigEndian.PutUint16(b[n:], uint16(v.TPID))
		binary.BigEndian.PutUint16(b[n+2:], v.TCI)
		n += VLANTagLen
	}
	binary.BigEndian.PutUint16(b[n:], uint16(e.Type))
	return n + 2
}
