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
	// at the same borders, and other segments through AF_XDP: see package ring/gso. Of a device without
	// checksum offload, transmit checksums must be off (ethtool -K INTERFACE tx off).
	TransmitGSO Transmit = "packet-gso"
	// TransmitLive sends runs of segments as XDP live frames, and other segments through AF_XDP. While the driver does
	// not take live frames, it sends all through AF_XDP; a veth takes them while its peer has an XDP program or GRO.
	// See package ring/live. A live frame lies within a page, so its packet has 3346 bytes at most, whatever the MTU.
	TransmitLive Transmit = "xdp-live"
	// TransmitAuto chooses the way that was measured to move the most bytes, together with the size of its packets. On
	// a veth it is TransmitLive, elsewhere TransmitXDP.
	TransmitAuto Transmit = "auto"
)

// On returns the way that t means on an interface of the calling thread's network namespace. It fails when that way is
// not possible there.
func (t Transmit) On(nic netlink.Link) (Transmit, error) {
	a := nic.Attrs()
	c := Config{Interface: a.Name, MTU: a.MTU, Transmit: t}
	err := c.chooseTransmit(nic.Type())
	return c.Transmit, err
}

// chooseTransmit replaces an empty Transmit and TransmitAuto by the chosen way; kind is the kind of the interface.
func (c *Config) chooseTransmit(kind string) error {
	switch c.Transmit {
	case TransmitXDP, TransmitLive:
	case "":
		c.Transmit = TransmitXDP
	case TransmitGSO:
		if !c.completes(kind) {
			return fmt.Errorf("transmit %q: a veth does not complete checksums, so the peer "+
				"would drop every segment (turn offload off: ethtool -K %s tx off)",
				c.Transmit, c.Interface)
		}
	case TransmitAuto:
		if c.Transmit = TransmitXDP; kind == "veth" {
			c.Transmit = TransmitLive
		}
	default:
		return fmt.Errorf("%w: unknown transmit mode %q: use %q, %q, %q or %q", verbs.ErrInvalid,
			c.Transmit, TransmitXDP, TransmitGSO, TransmitLive, TransmitAuto)
	}
	return nil
}

// way says how segments leave now, in packets of what size, and why. Live frames make packets shorter: see live.Port.
// Whatever way, a path or a peer that takes less counts.
func (x *driver) way() string {
	way, packet, why := x.cfg.Transmit, x.packetMTU(), "as configured"
	live := way == TransmitLive && x.live != nil
	switch {
	case live && !x.live.on.Load():
		way, why = TransmitXDP, "the driver accepts no live frames now (a veth does while its peer has an XDP program or GRO)"
	case live && packet > maxLiveMTU:
		why = fmt.Sprintf("live frames must fit in a page; measured faster than packets of %d sent otherwise", packet)
		packet = maxLiveMTU
	case live:
		why = "live frames measured fastest"
	case x.auto:
		why = "other modes measured faster on veth only"
	}
	return fmt.Sprintf("%s in packets of %d bytes: %s", way, packet, why)
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

// completes reports whether checksums that are left to the interface are completed.
func (c *Config) completes(kind string) bool {
	if kind != "veth" {
		return true
	}
	sums, err := ethtool.TxChecksums(c.Interface)
	return err != nil || !sums
}

// transmitPort wraps the socket of the i-th queue as cfg.Transmit asks. It owns sock when it succeeds.
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
