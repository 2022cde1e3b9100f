package config

import (
	"fmt"
	"net/netip"

	"xwarp/engine/esp"
)

// IPsec is an [[interface.ipsec]] table: whether and how connections of the interface with some peers and ports are
// encrypted.
type IPsec struct {
	Remote []netip.Prefix `toml:"remote" reload:"yes"`
	Ports  []uint16       `toml:"ports" reload:"yes"`
	Level  string         `toml:"level" reload:"yes"`
	Mode   string         `toml:"mode" reload:"yes"`
	IfID   Hex            `toml:"if_id"`
	Mark   Hex            `toml:"mark"`
	Window int            `toml:"window"`
}

// Values of IPsec.Level and IPsec.Mode.
const (
	LevelRequire = "require"
	LevelOff     = "off"

	ModeTransport = "transport"
	ModeTunnel    = "tunnel"
)

// Protection returns the first table that requires IPsec, or nil if none does. Its IfID, Mark and Window hold for all
// tables of the interface.
func (n *Interface) Protection() *IPsec {
	for i := range n.IPsec {
		if n.IPsec[i].Level == LevelRequire {
			return &n.IPsec[i]
		}
	}
	return nil
}

// completeIPsec sets the defaults of absent keys. Keys that all tables share may stand in the first table alone.
func (n *Interface) completeIPsec() {
	for i := range n.IPsec {
		p := &n.IPsec[i]
		def(&p.Level, LevelRequire)
		def(&p.Mode, ModeTransport)
	}
	first := n.Protection()
	if first == nil {
		return
	}
	def(&first.Mark, first.IfID)
	def(&first.Window, esp.DefaultWindow)
	for i := range n.IPsec {
		p := &n.IPsec[i]
		def(&p.IfID, first.IfID)
		def(&p.Mark, first.Mark)
		def(&p.Window, first.Window)
	}
}

// checkIPsec checks the tables of an interface.
func (l *Loaded) checkIPsec(f *faults, iface int) {
	n := &l.Interface[iface]
	name := fmt.Sprintf("interface[%d].ipsec", iface)
	if len(n.IPsec) > 0 && n.Transport == TransportKernel {
		f.addf("%s needs transport = \"xdp\": kernel sockets use the host's own IPsec "+
			"policies (ip xfrm policy)", name)
	}
	first := n.Protection()
	all := -1 // index of the table that matches all peers and ports; -1: none so far
	for i := range n.IPsec {
		p, key := &n.IPsec[i], fmt.Sprintf("%s[%d]", name, i)
		f.oneOf(key+".level", p.Level, LevelRequire, LevelOff)
		f.oneOf(key+".mode", p.Mode, ModeTransport, ModeTunnel)
		for _, port := range p.Ports {
			if port == 0 {
				f.addf("%s.ports has the invalid port 0; leave the list empty for all", key)
			}
		}
		if all >= 0 {
			f.addf("%s is never used: %s[%d] matches all peers and ports; put that one last", key,
				name, all)
		} else if len(p.Remote) == 0 && len(p.Ports) == 0 {
			all = i
		}
		if p.Level != LevelRequire {
			continue
		}
		if p.IfID == 0 {
			f.addf("%s.if_id is missing: choose a number such as 0x7877, and set it in the IKE "+
				"daemon as if_id_in, if_id_out and mark_in of the CHILD_SA", key)
			return
		}
		if p.IfID != first.IfID || p.Mark != first.Mark || p.Window != first.Window {
			f.addf("%s: if_id, mark and window differ from an earlier table of the interface: "+
				"leave them out", key)
		}
	}
	if first == nil {
		return
	}
	if w := first.Window; w < esp.MinWindow || w > esp.MaxWindow {
		f.addf("%s.window = %d: must be %d to %d packets", name, w, esp.MinWindow, esp.MaxWindow)
	}
	for i := range iface {
		if o := l.Interface[i].Protection(); o != nil && o.IfID == first.IfID {
			f.addf("%s.if_id = %#x: interface[%d] uses the same: give each interface its own "+
				"CHILD_SA", name, first.IfID, i)
		}
	}
}

// fixedIPsec returns a table with only the keys whose change needs a restart, or nil if no table requires IPsec.
func (n *Interface) fixedIPsec() []IPsec {
	p := n.Protection()
	if p == nil {
		return nil
	}
	return []IPsec{{IfID: p.IfID, Mark: p.Mark, Window: p.Window}}
}
