package xdp

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"xwarp/bpf"
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
	// TransmitGSO sends runs of segments as blocks of up to 64 KB through the kernel's segmentation offload, and
	// other segments through AF_XDP: see package ring/gso. A veth whose peer has no native program delivers a block
	// whole. Elsewhere the kernel or the NIC cuts it into the segments, at borders of FPDUs.
	TransmitGSO Transmit = "packet-gso"
	// TransmitLive sends runs of segments as XDP live frames, and other segments through AF_XDP. While the driver does
	// not take live frames, it sends all through AF_XDP; a veth takes them while its peer has an XDP program or GRO.
	// See package ring/live. A live frame lies within a page, so its packet has 3346 bytes at most, whatever the MTU.
	TransmitLive Transmit = "xdp-live"
	// TransmitAuto is TransmitGSO on veth, and where the program runs in generic mode because the driver has no native
	// one. Elsewhere it is TransmitXDP.
	TransmitAuto Transmit = "auto"
)

// AutoOn returns the way that TransmitAuto means on an interface of the calling thread's network namespace.
func AutoOn(nic netlink.Link) Transmit {
	d, err := ring.QueryDriver(nic.Attrs().Index)
	return autoTransmit(isVeth(nic), err == nil && !d.Native)
}

func autoTransmit(veth, generic bool) Transmit {
	if veth || generic {
		return TransmitGSO
	}
	return TransmitXDP
}

func isVeth(nic netlink.Link) bool { return nic.Type() == "veth" }

// checkTransmit fails if c.Transmit is unknown. It replaces an empty one.
func (c *Config) checkTransmit() error {
	switch c.Transmit {
	case TransmitXDP, TransmitGSO, TransmitLive, TransmitAuto:
	case "":
		c.Transmit = TransmitXDP
	default:
		return fmt.Errorf("%w: unknown transmit mode %q: use %q, %q, %q or %q", verbs.ErrInvalid,
			c.Transmit, TransmitXDP, TransmitGSO, TransmitLive, TransmitAuto)
	}
	return nil
}

// attachMode returns the mode in which to attach the program. A native program of a veth makes the kernel cut all that
// the peer sends into frames of the MTU; a generic one receives blocks whole, but on the first queue only. Live frames
// need a native one.
func (c *Config) attachMode(nic netlink.Link) bpf.Mode {
	if c.XDPMode == bpf.ModeAuto && isVeth(nic) && c.Transmit != TransmitLive &&
		ethtool.ReceiveQueues(nic.Attrs().Index, c.Interface, bpf.DefaultMaxQueues) == 1 {
		return bpf.ModeGeneric
	}
	return c.XDPMode
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
	case x.auto && way == TransmitGSO:
		why = "blocks measured fastest"
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
