package topo

import (
	"fmt"

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

// feature is a kernel name of an offload, and its setting.
type feature struct {
	name    string
	setting *Switch
}

// features returns those of o, each after the ones that it depends on.
func (o *Offloads) features() []feature {
	return []feature{{"tx-checksum-ip-generic", &o.TxChecksum},
		{"tx-tcp-segmentation", &o.TSO}, {"tx-tcp6-segmentation", &o.TSO},
		{"tx-tcp-ecn-segmentation", &o.TSO}, {"tx-tcp-mangleid-segmentation", &o.TSO},
		{"tx-generic-segmentation", &o.GSO}, {ethtool.GRO, &o.GRO}}
}

// SetOffloads changes the offloads of the interface called link in the namespace. It fails if the kernel keeps one: an
// XDP program on the peer end, or a feature that depends on another.
func (n *Namespace) SetOffloads(link string, o Offloads) error {
	return n.Do(func() error {
		for _, f := range o.features() {
			if *f.setting == Leave {
				continue
			}
			if err := ethtool.SetFeature(link, f.name, *f.setting == On); err != nil {
				return fmt.Errorf("topo: %w", err)
			}
		}
		return nil
	})
}

// ReadOffloads returns the offloads of the interface called link as they are, never Leave. An offload is on if one of
// its features is.
func (n *Namespace) ReadOffloads(link string) (o Offloads, err error) {
	o = NoOffloads
	err = n.Do(func() error {
		all, err := ethtool.Features(link)
		for _, f := range o.features() {
			if all[f.name].On {
				*f.setting = On
			}
		}
		return err
	})
	return o, err
}
