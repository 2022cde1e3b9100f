package topo

import (
	"fmt"

	"xwarp/engine/host/ethtool"
)

// Switch is the setting of an on-off option, or the wish to leave it unchanged.
type Switch uint8

// The settings of a Switch.
const (
	Leave Switch = iota
	Off
	On
)

// Offloads are the offload settings of one network interface (ethtool -K). The zero value changes nothing.
//
// With offloads on, kernel TCP over veth sends frames without a whole TCP checksum and larger than the MTU. AF_XDP
// peers and relays see such frames with a wrong checksum. So the offloads of the sending interface must be off.
type Offloads struct {
	TxChecksum Switch // ethtool -K tx; switching it off also switches TSO off
	TSO        Switch
	GSO        Switch
	GRO        Switch // veth's default is off
}

// NoOffloads makes the kernel send frames as on a real wire: with complete checksums, and none above the MTU.
var NoOffloads = Offloads{TxChecksum: Off, TSO: Off, GSO: Off, GRO: Off}

// feature is the kernel's name of an offload feature, and the setting that applies to it.
type feature struct {
	name    string
	setting *Switch
}

// features returns the features that the settings of o apply to, each after the features that it depends on.
func (o *Offloads) features() []feature {
	return []feature{{"tx-checksum-ip-generic", &o.TxChecksum},
		{"tx-tcp-segmentation", &o.TSO}, {"tx-tcp6-segmentation", &o.TSO},
		{"tx-tcp-ecn-segmentation", &o.TSO}, {"tx-tcp-mangleid-segmentation", &o.TSO},
		{"tx-generic-segmentation", &o.GSO}, {ethtool.GRO, &o.GRO}}
}

// SetOffloads changes the offloads of the interface called link in the namespace. It fails if the kernel does not
// change one, because of an XDP program on the other end of the pair or because the feature depends on another.
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

// ReadOffloads returns the current offloads of the interface called link, each On or Off. An offload is On if at least
// one of its features is on.
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
