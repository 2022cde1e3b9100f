package topo

import (
	"fmt"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

// Switch is a setting that may be left alone.
type Switch uint8

// The settings of a Switch.
const (
	Leave Switch = iota
	Off
	On
)

// Offloads are settings of one network interface (ethtool -K); the zero value changes nothing.
//
// A kernel TCP socket over veth sends frames without TCP checksum and larger than the MTU unless these are switched
// off on its own end. AF_XDP peers and relays then see checksums that are wrong.
type Offloads struct {
	TxChecksum Switch // ethtool -K tx; Off takes TSO with it
	TSO        Switch
	GSO        Switch
	GRO        Switch // veth's default is off
}

// NoOffloads makes the kernel send what a wire would carry: whole checksums, no frame above the MTU.
var NoOffloads = Offloads{TxChecksum: Off, TSO: Off, GSO: Off, GRO: Off}

// offloadCommands are the ethtool commands of one feature (linux/ethtool.h).
type offloadCommands struct {
	name     string
	get, set uint32
}

var (
	cmdTxChecksum = offloadCommands{"tx checksumming", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM}
	cmdTSO        = offloadCommands{"TCP segmentation offload", unix.ETHTOOL_GTSO,
		unix.ETHTOOL_STSO}
	cmdGSO = offloadCommands{"generic segmentation offload", unix.ETHTOOL_GGSO,
		unix.ETHTOOL_SGSO}
	cmdGRO = offloadCommands{"generic receive offload", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO}
)

// SetOffloads changes the offloads of the interface called link in the namespace.
func (n *Namespace) SetOffloads(link string, o Offloads) error {
	return n.Do(func() error {
		for _, c := range []struct {
			cmd  offloadCommands
			want Switch
		}{{cmdTxChecksum, o.TxChecksum}, {cmdTSO, o.TSO}, {cmdGSO, o.GSO}, {cmdGRO, o.GRO}} {
			if err := setFeature(link, c.cmd, c.want); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReadOffloads returns the offloads of the interface called link as they are, never Leave.
func (n *Namespace) ReadOffloads(link string) (o Offloads, err error) {
	err = n.Do(func() error {
		for _, c := range []struct {
			cmd offloadCommands
			to  *Switch
		}{{cmdTxChecksum, &o.TxChecksum}, {cmdTSO, &o.TSO}, {cmdGSO, &o.GSO}, {cmdGRO, &o.GRO}} {
			v, err := ethtool.Value(link, c.cmd.get, 0)
			if err != nil {
				return fmt.Errorf("topo: reading %s of %s: %w", c.cmd.name, link, err)
			}
			*c.to = Off
			if v != 0 {
				*c.to = On
			}
		}
		return nil
	})
	return o, err
}

// setFeature switches one feature and reads it back, because the kernel keeps "fixed" features without complaint.
func setFeature(link string, cmd offloadCommands, want Switch) error {
	if want == Leave {
		return nil
	}
	value := uint32(0)
	if want == On {
		value = 1
	}
	if _, err := ethtool.Value(link, cmd.set, value); err != nil {
		return fmt.Errorf("topo: switching %s of %s: %w", cmd.name, link, err)
	}
	got, err := ethtool.Value(link, cmd.get, 0)
	if err != nil {
		return fmt.Errorf("topo: reading %s of %s: %w", cmd.name, link, err)
	}
	if (got != 0) != (want == On) {
		return fmt.Errorf("topo: %s of %s stays %v: an XDP program on the peer end, or a feature "+
			"that depends on another, keeps it",
			cmd.name, link, got != 0)
	}
	return nil
}
