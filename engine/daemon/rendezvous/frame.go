// Package rendezvous is how two daemons connect queue pairs whose programs exchange GID and QPN themselves and then
// call ibv_modify_qp, as programs for InfiniBand and RoCE do. When a queue pair reaches RTR, the daemon of the lower
// endpoint dials Port of the peer's daemon. The private data of MPA's Request and Reply is a Frame. A request is
// accepted when its addresses and its Frame are exactly those that the local program named.
package rendezvous

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
)

// Port is the TCP port of every daemon at which it accepts connections for such queue pairs.
const Port = 4791

// QPNBits is the length of a queue pair's number. Programs print and pack 24 bits.
const QPNBits = 24

// Endpoint is a queue pair as its peer names it.
type Endpoint struct {
	GID netip.Addr // IPv4 or IPv6, without zone; never IPv4-mapped
	QPN uint32
}

func (e Endpoint) compare(o Endpoint) int {
	a, b := e.GID.As16(), o.GID.As16()
	if c := bytes.Compare(a[:], b[:]); c != 0 {
		return c
	}
	return int(e.QPN) - int(o.QPN)
}

// Pair is a connection as one of its ends sees it. It is comparable.
type Pair struct{ Local, Remote Endpoint }

// Dials reports whether the local end dials: it has the lower endpoint.
func (p Pair) Dials() bool { return p.Local.compare(p.Remote) < 0 }

// IsSelf reports whether the pair is one queue pair that is its own peer.
func (p Pair) IsSelf() bool { return p.Local == p.Remote }

// Frame is the private data of a Request, and with the ends exchanged that of the Reply that accepts it. Both ends of
// this version agree by it to the private messages of package rdmap.
//
//	0..3 "XWRV"  4 version  5..7 zero
//	8..11 QPN of the sender   12..15 QPN of the receiver
//	16..31 GID of the sender  32..47 GID of the receiver
type Frame struct{ Source, Target Endpoint }

const (
	magic    = "XWRV"
	version  = 2
	frameLen = 48
)

// ErrFrame is returned for private data that is no Frame of this version.
var ErrFrame = errors.New("not a rendezvous frame of this version")

// FrameOf returns the frame that the local end of p sends.
func FrameOf(p Pair) Frame { return Frame{Source: p.Local, Target: p.Remote} }

// Expected returns the frame that the other end of p sends.
func Expected(p Pair) Frame { return Frame{Source: p.Remote, Target: p.Local} }

// Pair returns the connection as the receiver of f sees it.
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

// Refusal is the private data of every Reject. It is the same for each reason.
var Refusal = []byte(magic + string([]byte{version}) + "no\x00")

// IsRefusal reports whether private data of a Reject is a daemon's Refusal.
func IsRefusal(b []byte) bool { return bytes.Equal(b, Refusal) }
