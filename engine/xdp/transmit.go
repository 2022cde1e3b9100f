package xdp

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/ethtool"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/ring/gso"
)

// Transmit is how segments leave.
type Transmit string

// The ways of Transmit.
const (
	// TransmitXDP sends each segment through AF_XDP.
	TransmitXDP Transmit = "xdp"
	// TransmitGSO sends runs of segments as blocks through the kernel's segmentation offload, which cuts them
	// at the same borders, and what makes no block through AF_XDP: see package ring/gso. Of a device without
	// checksum offload, transmit checksums must be off (ethtool -K INTERFACE tx off).
	TransmitGSO Transmit = "packet-gso"
	// TransmitLive sends runs of segments as XDP live frames, and what makes no run through AF_XDP, as
	// everything does while the driver takes no such frames (a veth takes them while its peer has an XDP
	// program or GRO): see package ring/live. A frame must lie within a page, so the MTU may be 3346 at most.
	TransmitLive Transmit = "xdp-live"
	// TransmitAuto is what was measured to be the fastest: on a veth TransmitLive, with an MTU that is too
	// large for it and transmit checksums off TransmitGSO, if the process has the capabilities; TransmitXDP
	// elsewhere.
	TransmitAuto Transmit = "auto"
)

// On returns the way that t takes on an interface of the calling thread's network namespace, or why it cannot be
// taken there.
func (t Transmit) On(nic netlink.Link) (Transmit, error) {
	a := nic.Attrs()
	c := Config{Interface: a.Name, MTU: a.MTU, Transmit: t}
	err := c.chooseTransmit(a.Index, nic.Type())
	return c.Transmit, err
}

// chooseTransmit replaces what leaves the choice to the engine by the way that it takes; kind is the interface's.
func (c *Config) chooseTransmit(link int, kind string) error {
	switch c.Transmit {
	case TransmitXDP, TransmitLive:
	case "":
		c.Transmit = TransmitXDP
	case TransmitGSO:
		if !c.completes(kind) {
			return fmt.Errorf("transmit %q: nobody completes checksums on a veth, so the peer "+
				"would drop every block (switch that off: ethtool -K %s tx off)",
				c.Transmit, c.Interface)
		}
	case TransmitAuto:
		c.Transmit = TransmitXDP
		if kind != "veth" {
			return nil
		}
		if c.MTU <= maxLiveMTU {
			c.Transmit = TransmitLive
		} else if c.completes(kind) {
			if s, err := c.sender(link); err == nil {
				s.Close()
				c.Transmit = TransmitGSO
			}
		}
	default:
		return fmt.Errorf("%w: transmit %q: there are %q, %q, %q and %q", verbs.ErrInvalid,
			c.Transmit, TransmitXDP, TransmitGSO, TransmitLive, TransmitAuto)
	}
	return nil
}

// sender opens a packet socket for blocks.
func (c *Config) sender(link int) (*gso.Sender, error) {
	if c.Privileges == nil {
		return gso.OpenSender(link)
	}
	fd, err := c.Privileges.takePacketSocket()
	if err != nil {
		return nil, err
	}
	return gso.UseSocket(fd, link)
}

// completes reports whether somebody completes checksums that are left to the device.
func (c *Config) completes(kind string) bool {
	if kind != "veth" {
		return true
	}
	sums, err := ethtool.TxChecksums(c.Interface)
	return err != nil || !sums
}

// transmitPort puts what cfg.Transmit says around the socket of the i-th queue. It owns sock when it succeeds.
func (x *driver) transmitPort(sock *ring.Socket, i, link int) (ring.Port, error) {
	switch x.cfg.Transmit {
	case TransmitLive:
		return x.livePort(sock, i, link)
	case TransmitXDP:
		return sock, nil
	}
	s, err := x.cfg.sender(link)
	if err != nil {
		return nil, err
	}
	return gso.Wrap(sock, s), nil
}
