// Package rendezvous connects queue pairs of two daemons whose programs exchange GID and QPN themselves and then call
// ibv_modify_qp, as InfiniBand and RoCE programs do. When a queue pair reaches RTR, the daemon of the lower address
// dials Port of the peer's daemon. The private data of MPA's Request and Reply is a Frame. A request is accepted only
// if its addresses and its Frame are exactly those that the local program set.
package rendezvous

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
)

// Port is the TCP port on which every daemon accepts connections for such queue pairs.
const Port = 4791

// QPNBits is the length of a queue pair number. Programs print and pack 24 bits.
const QPNBits = 24

// QPAddr identifies a queue pair to its peer.
type QPAddr struct {
	GID netip.Addr // IPv4 or IPv6, without zone; never IPv4-mapped
	QPN uint32
}

func (a QPAddr) compare(o QPAddr) int {
	return cmp.Or(a.GID.Compare(o.GID), cmp.Compare(a.QPN, o.QPN))
}

// Pair is a connection from the view of one end. It is comparable.
type Pair struct{ Local, Remote QPAddr }

// Dials reports whether the local end dials: it has the lower address.
func (p Pair) Dials() bool { return p.Local.compare(p.Remote) < 0 }

// IsSelf reports whether the pair is one queue pair that is its own peer.
func (p Pair) IsSelf() bool { return p.Local == p.Remote }

// Frame is the private data of a Request, and with swapped ends that of the accepting Reply. With it, both ends agree
// to use the private messages of package rdmap.
//
//	0..3 "XWRV"  4 version  5..7 zero
//	8..11 QPN of the sender   12..15 QPN of the receiver
//	16..31 GID of the sender  32..47 GID of the receiver
type Frame struct{ Source, Target QPAddr }

const (
	magic    = "XWRV"
	version  = 2
	frameLen = 48
)

// ErrFrame is returned for private data that is not a Frame of this version.
var ErrFrame = errors.New("not a rendezvous frame of this version")

// LocalFrame returns the frame that the local end of p sends.
func LocalFrame(p Pair) Frame { return Frame{Source: p.Local, Target: p.Remote} }

// PeerFrame returns the frame that the other end of p sends.
func PeerFrame(p Pair) Frame { return Frame{Source: p.Remote, Target: p.Local} }

// Pair returns the connection from the view of the receiver of f.
func (f Frame) Pair() Pair { return Pair{Local: f.Target, Remote: f.Source} }

// Append appends the encoded f to b.
func (f Frame) Append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, version, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, f.Source.QPN)
	b = binary.BigEndian.AppendUint32(b, f.Target.QPN)
	source, target := f.Source.GID.As16(), f.Target.GID.As16()
	return append(append(b, source[:]...), target[:]...)
}

// ParseFrame decodes private data. It fails with ErrFrame.
func ParseFrame(b []byte) (f Frame, err error) {
	if len(b) != frameLen || string(b[:8]) != magic+string([]byte{version, 0, 0, 0}) {
		return f, ErrFrame
	}
	f.Source.QPN, f.Target.QPN = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	if (f.Source.QPN|f.Target.QPN)>>QPNBits != 0 {
		return Frame{}, ErrFrame
	}
	f.Source.GID = netip.AddrFrom16([16]byte(b[16:])).Unmap()
	f.Target.GID = netip.AddrFrom16([16]byte(b[32:])).Unmap()
	return f, nil
}

// Refusal is the private data of every Reject. It is the same for any reason, so that a peer learns nothing from it.
var Refusal = []byte(magic + string([]byte{version}) + "no\x00")

// IsRefusal reports whether the private data of a Reject is a daemon's Refusal.
func IsRefusal(b []byte) bool { return bytes.Equal(b, Refusal) }
