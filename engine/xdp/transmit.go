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
	case TransmitXDP, TransmitGSO, TransmitAuto:
	case "":
		c.Transmit = TransmitXDP
	default:
		return fmt.Errorf("%w: unknown transmit mode %q: use %q, %q or %q", verbs.ErrInvalid,
			c.Transmit, TransmitXDP, TransmitGSO, TransmitAuto)
	}
	return nil
}

// attachMode returns the mode in which to attach the program. A native program of a veth makes the kernel cut all that
// the peer sends into frames of the MTU; a generic one receives blocks whole, but most frames on the first queue. So
// several queues have a native one if segments leave as frames. In a dispatcher the program has the mode of that.
func (c *Config) attachMode(nic netlink.Link) bpf.Mode {
	xdp := nic.Attrs().Xdp
	if c.XDPMode == bpf.ModeAuto && isVeth(nic) && (xdp == nil || !xdp.Attached) &&
		(c.Transmit != TransmitXDP || ethtool.ReceiveQueues(nic.Attrs().Index,
			nic.Attrs().Name, bpf.DefaultMaxQueues) == 1) {
		return bpf.ModeGeneric
	}
	return c.XDPMode
}

// way says how segments leave now, in packets of what size, and why. A path or a peer that takes less counts.
func (x *driver) way() string {
	way, why := x.cfg.Transmit, "as configured"
	switch {
	case x.auto && way == TransmitGSO:
		why = "blocks measured fastest"
	case x.auto:
		why = "other modes measured faster on veth only"
	}
	return fmt.Sprintf("%s in packets of %d bytes: %s", way, x.packetMTU(), why)
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

// transmitPort wraps the port of a queue as cfg.Transmit asks. It owns sock when it succeeds.
func (t *trunk) transmitPort(sock ring.Port, link int) (ring.Port, error) {
	if t.cfg.Transmit == TransmitXDP {
		return sock, nil
	}
	s, err := t.cfg.sender(link)
	if err != nil {
		return nil, err
	}
	return gso.Wrap(sock, s), nil
}
