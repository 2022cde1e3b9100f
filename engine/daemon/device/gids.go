package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// GIDs returns the addresses of the device's interface, IPv4 first, which programs of ibv_modify_qp use as GIDs. It
// skips link-local addresses, because a GID cannot have their zone.
func (d *Device) GIDs() (list []netip.Addr, err error) {
	err = d.Core.Do(func() error {
		i, err := net.InterfaceByName(d.ifname())
		if err != nil {
			return err
		}
		all, err := i.Addrs()
		if err != nil {
			return err
		}
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				if a := p.Addr().Unmap(); !a.IsLinkLocalUnicast() {
					list = append(list, a)
				}
			}
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return list, err
}

// AllowsDirect returns an error unless queue pairs may be connected to a peer by ibv_modify_qp. Either end may send
// first, which needs MPA's peer-to-peer model.
func (p *Opener) AllowsDirect(remote netip.Addr) error {
	switch m, allowed := p.policy(remote); {
	case !allowed:
		return verbs.ErrPeerDenied
	case m.Revision == startup.RevIETF || m.ClientServer:
		return fmt.Errorf("%w: ibv_modify_qp to %v needs mpa.revision = 2 and mpa.peer_to_peer = true",
			syscall.EOPNOTSUPP, remote)
	}
	return nil
}
