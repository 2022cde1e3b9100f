package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// flowKey is struct flow_key of maps.h:
//
//	 0                16                32            34           36     40
//	| local address   | remote address  | remote port | local port | VLAN |
//
// Everything but the VLAN is in network byte order. IPv4 addresses are IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2).
type flowKey [40]byte

// listenerKey is struct listener_key of maps.h:
//
//	 0                16           18     20
//	| local address   | local port | VLAN |
type listenerKey [20]byte

// saKey is struct sa_key of maps.h:
//
//	 0                16                32    36     40
//	| destination     | source          | SPI | VLAN |
type saKey [40]byte

// This compiles only if the generated structs have no padding and the same size.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(steerFlowKey{})-unsafe.Sizeof(flowKey{})]
	_ = [1]struct{}{}[unsafe.Sizeof(steerListenerKey{})-unsafe.Sizeof(listenerKey{})]
	_ = [1]struct{}{}[unsafe.Sizeof(steerSaKey{})-unsafe.Sizeof(saKey{})]
)

func (k *flowKey) vlan() uint32     { return binary.NativeEndian.Uint32(k[36:]) }
func (k *listenerKey) vlan() uint16 { return binary.NativeEndian.Uint16(k[18:]) }
func (k *saKey) vlan() uint32       { return binary.NativeEndian.Uint32(k[36:]) }

func makeFlowKey(vlan uint16, local, remote netip.AddrPort) (k flowKey) {
	l, r := local.Addr().As16(), remote.Addr().As16()
	copy(k[0:], l[:])
	copy(k[16:], r[:])
	binary.BigEndian.PutUint16(k[32:], remote.Port())
	binary.BigEndian.PutUint16(k[34:], local.Port())
	binary.NativeEndian.PutUint32(k[36:], uint32(vlan))
	return k
}

func makeListenerKey(vlan uint16, local netip.AddrPort) (k listenerKey) {
	l := local.Addr().As16()
	copy(k[0:], l[:])
	binary.BigEndian.PutUint16(k[16:], local.Port())
	binary.NativeEndian.PutUint16(k[18:], vlan)
	return k
}

// AddFlow claims the segments that remote sends to local. It ignores the zones of the addresses, because a Steering
// serves one interface. Errors: [ErrClaimed], [ErrFull].
func (v *VLAN) AddFlow(local, remote netip.AddrPort) error {
	return v.changeFlow(local, remote, func(k *flowKey) error {
		return addClaim(v.s.objs.Flows, k, "Options.MaxFlows")
	})
}

// RemoveFlow removes a flow that [VLAN.AddFlow] added. Error: [ErrNotClaimed].
func (v *VLAN) RemoveFlow(local, remote netip.AddrPort) error {
	return v.changeFlow(local, remote, func(k *flowKey) error {
		return removeClaim(v.s.objs.Flows, k)
	})
}

// changeFlow checks the addresses of a flow and runs change with its key.
func (v *VLAN) changeFlow(local, remote netip.AddrPort, change func(*flowKey) error) error {
	return v.s.whileOpen(func() error {
		for _, a := range []netip.AddrPort{local, remote} {
			if !a.IsValid() || a.Addr().IsUnspecified() || a.Port() == 0 {
				return errors.New("both ends need an address and a port")
			}
		}
		if local.Addr().Unmap().Is4() != remote.Addr().Unmap().Is4() {
			return errors.New("one end is IPv4, the other IPv6")
		}
		k := makeFlowKey(v.id, local, remote)
		return change(&k)
	}, "flow %s from %s", local, remote)
}

// AddSA claims the ESP packets with an SPI from src to dst, the addresses of the SA, and ICMP errors that quote such
// packets. ESP packets of other SAs, such as the host's own VPNs, stay with the kernel. Errors: [ErrClaimed],
// [ErrFull].
func (v *VLAN) AddSA(dst, src netip.Addr, spi uint32) error {
	return v.changeSA(dst, src, spi, func(k *saKey) error {
		return addClaim(v.s.objs.Sas, k, "Options.MaxSAs")
	})
}

// RemoveSA removes an SA that [VLAN.AddSA] added. Error: [ErrNotClaimed].
func (v *VLAN) RemoveSA(dst, src netip.Addr, spi uint32) error {
	return v.changeSA(dst, src, spi, func(k *saKey) error {
		return removeClaim(v.s.objs.Sas, k)
	})
}

// changeSA checks the addresses of an SA and runs change with its key.
func (v *VLAN) changeSA(dst, src netip.Addr, spi uint32, change func(*saKey) error) error {
	return v.s.whileOpen(func() error {
		l, r := dst.Unmap(), src.Unmap()
		if !l.IsValid() || l.IsUnspecified() || !r.IsValid() || r.IsUnspecified() || spi == 0 {
			return errors.New("needs two addresses and an SPI")
		}
		if l.Is4() != r.Is4() {
			return errors.New("one end is IPv4, the other IPv6")
		}
		var k saKey
		to, from := l.As16(), r.As16()
		copy(k[0:], to[:])
		copy(k[16:], from[:])
		binary.BigEndian.PutUint32(k[32:], spi)
		binary.NativeEndian.PutUint32(k[36:], uint32(v.id))
		return change(&k)
	}, "SA 0x%08x to %s from %s", spi, dst, src)
}

// AddListener claims all segments to a local address and port. The address 0.0.0.0 means any IPv4 address of
// [VLAN.SetLocal], :: any IPv6 address of it, and the zero [netip.Addr] both. It ignores zones. Errors: [ErrClaimed],
// [ErrFull]; then nothing is claimed.
func (v *VLAN) AddListener(local netip.AddrPort) error {
	return v.changeListener(local, func(keys []listenerKey) error {
		for i := range keys {
			if err := addClaim(v.s.objs.Listeners, &keys[i], "Options.MaxListeners"); err != nil {
				return errors.Join(err, v.removeListeners(keys[:i]))
			}
		}
		return nil
	})
}

// RemoveListener removes a listener that [VLAN.AddListener] added with the same argument. Error: [ErrNotClaimed].
func (v *VLAN) RemoveListener(local netip.AddrPort) error {
	return v.changeListener(local, v.removeListeners)
}

func (v *VLAN) removeListeners(keys []listenerKey) (err error) {
	for i := range keys {
		err = errors.Join(err, removeClaim(v.s.objs.Listeners, &keys[i]))
	}
	return err
}

// changeListener runs change with the keys of a listener, and makes cached listeners invalid.
func (v *VLAN) changeListener(local netip.AddrPort, change func([]listenerKey) error) error {
	return v.s.whileOpen(func() error {
		keys, err := v.listenerKeys(local)
		if err != nil {
			return err
		}
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		return errors.Join(change(keys), v.bumpGeneration())
	}, "listener %s", listenerName(local))
}

func (v *VLAN) listenerKeys(local netip.AddrPort) ([]listenerKey, error) {
	if local.Port() == 0 {
		return nil, errors.New("needs a port")
	}
	if local.Addr().IsValid() {
		return []listenerKey{makeListenerKey(v.id, local)}, nil
	}
	return []listenerKey{
		makeListenerKey(v.id, netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())),
		makeListenerKey(v.id, netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())),
	}, nil
}

func listenerName(local netip.AddrPort) string {
	if !local.Addr().IsValid() {
		return fmt.Sprintf("*:%d", local.Port())
	}
	return local.String()
}

func addClaim(m *ebpf.Map, key any, option string) error {
	err := m.Update(key, uint32(1), ebpf.UpdateNoExist)
	switch {
	case errors.Is(err, ebpf.ErrKeyExist):
		return ErrClaimed
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("%w at %d entries: raise %s", ErrFull, m.MaxEntries(), option)
	}
	return err
}

func removeClaim(m *ebpf.Map, key any) error {
	err := m.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return ErrNotClaimed
	}
	return err
}

// Oldest is the oldest supported release of Linux: the first one whose AF_XDP sockets accept packets of several buffers
// (XDP_USE_SG), which the engine needs. The verifiers of older kernels refuse the program, too.
const Oldest = "6.6"

// NewEnough reports whether a release, as uname -r prints it, is Oldest or later.
func NewEnough(release string) bool {
	var major, minor, needMajor, needMinor int
	fmt.Sscanf(Oldest, "%d.%d", &needMajor, &needMinor)
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > needMajor || major == needMajor && minor >= needMinor
}

// Release returns the release of the running kernel, as uname -r prints it, or "" when it is unknown.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
