package engine

import (
	"fmt"

	"xwarp/engine/ethtool"
	"xwarp/ring"
	"xwarp/ring/gso"
)

// Transmit is how segments leave.
type Transmit string

// The ways of Transmit.
const (
	// TransmitXDP sends each segment through AF_XDP.
	TransmitXDP Transmit = "xdp"
	// TransmitGSO sends runs of segments as blocks through the kernel's segmentation offload, which cuts them at the same
	// borders, and what makes no block through AF_XDP: see package ring/gso. Of a device without checksum offload, transmit checksums
	// must be off (ethtool -K INTERFACE tx off).
	TransmitGSO Transmit = "packet-gso"
	// TransmitLive sends runs of segments as XDP live frames, and what makes no run through AF_XDP, as everything does while the
	// driver takes no such frames (a veth takes them while its peer has an XDP program or GRO): see package ring/live. A frame must
	// lie within a page, so the MTU may be 3346 at most.
	TransmitLive Transmit = "xdp-live"
	// TransmitAuto is TransmitGSO where that is known to be faster, a veth with transmit checksums off, if the process has the
	// capabilities, and TransmitXDP elsewhere.
	TransmitAuto Transmit = "auto"
)

// transmitPort puts what cfg.Transmit asks for around the socket of the i-th queue. It owns sock when it succeeds.
func (x *xdpDriver) transmitPort(sock *ring.Socket, i, link int, kind string) (ring.Port, error) {
	c := &x.cfg
	switch c.Transmit {
	case TransmitLive:
		return x.livePort(sock, i, link)
	case "", TransmitXDP:
		return sock, nil
	case TransmitAuto:
		if sums, err := ethtool.TxChecksums(c.Interface); kind == "veth" && err == nil && !sums {
			if s, err := gso.OpenSender(link); err == nil {
				return gso.Wrap(sock, s), nil
			}
		}
		return sock, nil
	case TransmitGSO:
	default:
		return nil, fmt.Errorf("transmit %q: there are %q, %q, %q and %q", c.Transmit, TransmitXDP, TransmitGSO, TransmitLive, TransmitAuto)
	}
	if sums, err := ethtool.TxChecksums(c.Interface); kind == "veth" && err == nil && sums {
		return nil, fmt.Errorf("transmit %q: nobody completes checksums on a veth, so the peer would drop every block (switch that off: ethtool -K %s tx off)",
			c.Transmit, c.Interface)
	}
	s, err := gso.OpenSender(link)
	if err != nil {
		return nil, err
	}
	return gso.Wrap(sock, s), nil
}
