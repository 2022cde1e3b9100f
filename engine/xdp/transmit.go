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

// Transmit is the way in which segments are sent.
type Transmit string

// The values of Transmit.
const (
	// TransmitXDP sends each segment through AF_XDP.
	TransmitXDP Transmit = "xdp"
	// TransmitGSO sends runs of segments as blocks of up to 64 KB through the kernel's segmentation offload, and
	// other segments through AF_XDP: see package ring/gso. A veth whose peer has no native program delivers a block
	// whole. Elsewhere the kernel or the NIC cuts it into the segments, at borders of FPDUs.
	TransmitGSO Transmit = "packet-gso"
	// TransmitAuto means TransmitGSO on a veth, and on any interface where native mode is not available. Otherwise it
	// is TransmitXDP, also if Config.XDPMode chose generic mode: blocks were not measured there.
	TransmitAuto Transmit = "auto"
)

// AutoOn returns the value that TransmitAuto stands for on an interface of the calling thread's network namespace, if
// the program is native where the driver supports it.
func AutoOn(nic netlink.Link) Transmit {
	return autoTransmit(isVeth(nic), lacksNative(nic.Attrs().Index))
}

// autoTransmit returns the value that TransmitAuto stands for. onlyGeneric reports that native mode is not available.
func autoTransmit(veth, onlyGeneric bool) Transmit {
	if veth || onlyGeneric {
		return TransmitGSO
	}
	return TransmitXDP
}

// lacksNative reports whether the driver of the interface with index link has no native mode.
func lacksNative(link int) bool {
	d, err := ring.QueryDriver(link)
	return err == nil && !d.Native
}

func isVeth(nic netlink.Link) bool { return nic.Type() == "veth" }

// checkTransmit fails if c.Transmit is unknown. It replaces an empty value by TransmitXDP.
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

// attachMode returns the mode in which to attach the program. A native program on a veth makes the kernel cut blocks of
// the peer into frames of the MTU. A generic program receives blocks whole, but most frames on the first queue. So
// ModeAuto means generic on a veth that sends blocks or has one queue. If the interface has a program, c.XDPMode stays:
// in a dispatcher the program has the dispatcher's mode.
func (c *Config) attachMode(nic netlink.Link) bpf.Mode {
	xdp := nic.Attrs().Xdp
	if c.XDPMode == bpf.ModeAuto && isVeth(nic) && (xdp == nil || !xdp.Attached) &&
		(c.Transmit != TransmitXDP || ethtool.ReceiveQueues(nic.Attrs().Index,
			nic.Attrs().Name, bpf.DefaultMaxQueues) == 1) {
		return bpf.ModeGeneric
	}
	return c.XDPMode
}

// way says in which way segments are sent, in packets of at most which size, and why in this way. A connection uses
// smaller packets if its path or its peer requires it.
func (x *driver) way() string {
	way, why := x.cfg.Transmit, "as configured"
	switch {
	case x.auto && way == TransmitGSO && !x.trunk.veth:
		why = "native XDP is not available"
	case x.auto && way == TransmitGSO:
		why = "blocks measured fastest"
	case x.auto:
		why = "other modes measured faster on veth only"
	}
	return fmt.Sprintf("%s in packets of %d bytes: %s", way, x.packetMTU(), why)
}

// sender opens a packet socket that sends blocks on the interface with index link.
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

// transmitPort returns the port of a queue that sends in the way of cfg.Transmit: sock, or a gso.Port that owns sock.
// After an error the caller still owns sock.
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
