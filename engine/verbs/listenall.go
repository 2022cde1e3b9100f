package verbs

import (
	"errors"
	"net/netip"
	"syscall"
)

// ListenAll listens on each address, and on the port of the first one where another has port 0. It leaves out a further
// address of a family that the host is without, such as IPv6. After an error no listener stays open.
func ListenAll(d Device, at []netip.AddrPort, cfg ListenConfig) (list []Listener, err error) {
	for i, a := range at {
		if i > 0 && a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), list[0].Addr().Port())
		}
		l, err := d.Listen(a, cfg)
		if i > 0 && (errors.Is(err, syscall.EAFNOSUPPORT) ||
			errors.Is(err, syscall.EADDRNOTAVAIL)) {
			continue
		}
		if err != nil {
			for _, l := range list {
				l.Close()
			}
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}
