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

// NoOffloads makes the kernel send frames as a wire would carry them: complete checksums, no frame above the MTU.
var NoOffloads = Offloads{TxChecksum: Off, TSO: Off, GSO: Off, GRO: Off}

// feature is one of the settings, with its ethtool commands (linux/ethtool.h).
type feature struct {
	name     string
	get, set uint32
	setting  *Switch
}

func (o *Offloads) features() []feature {
	return []feature{
		{"tx checksumming", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM, &o.TxChecksum},
		{"TCP segmentation offload", unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO, &o.TSO},
		{"generic segmentation offload", unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO, &o.GSO},
		{"generic receive offload", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO, &o.GRO},
	}
}

// SetOffloads changes the offloads of the interface called link in the namespace.
func (n *Namespace) SetOffloads(link string, o Offloads) error {
	return n.Do(func() error {
		for _, f := range o.features() {
			if err := f.apply(link); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReadOffloads returns the offloads of the interface called link as they are, never Leave.
func (n *Namespace) ReadOffloads(link string) (o Offloads, err error) {
	err = n.Do(func() (err error) {
		for _, f := range o.features() {
			if *f.setting, err = f.read(link); err != nil {
				return err
			}
		}
		return nil
	})
	return o, err
}

func (f *feature) read(link string) (Switch, error) {
	switch v, err := ethtool.Value(link, f.get, 0); {
	case err != nil:
		return Leave, fmt.Errorf("topo: reading %s of %s: %w", f.name, link, err)
	case v != 0:
		return On, nil
	}
	return Off, nil
}

// apply switches one feature and reads it back, because the kernel keeps "fixed" features without complaint.
func (f *feature) apply(link string) error {
	want := *f.setting
	if want == Leave {
		return nil
	}
	if _, err := ethtool.Value(link, f.set, uint32(want-Off)); err != nil {
		return fmt.Errorf("topo: switching %s of %s: %w", f.name, link, err)
	}
	got, err := f.read(link)
	if err == nil && got != want {
		err = fmt.Errorf("topo: %s of %s stays %v: an XDP program on the peer end, or a feature "+
			"that depends on another, keeps it", f.name, link, got == On)
	}
	return err
}
