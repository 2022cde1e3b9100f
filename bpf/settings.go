package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// prefixes is a set of addresses in the kernel: a map whose keys are struct prefix of maps.h, and whose value is 1 for
// a prefix in the set and 0 for an excluded part of a shorter prefix.
type prefixes struct {
	m    *ebpf.Map
	vlan uint16
	have map[netip.Prefix]uint32 // content of m for the VLAN
}

func newPrefixes(m *ebpf.Map, vlan uint16) prefixes {
	return prefixes{m, vlan, map[netip.Prefix]uint32{}}
}

// mappedIPv4 is the prefix of all IPv4 addresses. In the map they are a range of IPv6 addresses (IPv4-mapped). The
// prefix is always in the map, with the value 0, so that an IPv6 prefix that covers the range does not match IPv4
// addresses.
var mappedIPv4 = netip.MustParsePrefix("0.0.0.0/0")

// replace changes the set to want. Prefixes in both sets stay in the map throughout.
func (p *prefixes) replace(want []netip.Prefix) error {
	in := make(map[netip.Prefix]bool, len(want))
	for _, w := range want {
		in[w] = true
	}
	return p.replaceWith(in)
}

// replaceWith changes the set to the prefixes of want whose value is true. Those with the value false are excluded
// parts of shorter prefixes.
func (p *prefixes) replaceWith(want map[netip.Prefix]bool) error {
	next := map[netip.Prefix]uint32{mappedIPv4: 0}
	for w, in := range want {
		if !w.IsValid() {
			return fmt.Errorf("prefix %v is invalid", w)
		}
		if a := w.Addr(); a.Is4In6() && w.Bits() >= 96 {
			w = netip.PrefixFrom(a.Unmap(), w.Bits()-96)
		}
		if next[w.Masked()] = 0; in {
			next[w.Masked()] = 1
		}
	}
	if err := p.keep(next); err != nil {
		return err
	}
	for w, in := range next {
		if now, ok := p.have[w]; ok && now == in {
			continue
		}
		if err := p.m.Update(p.key(w), in, ebpf.UpdateAny); errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%w at %d entries: raise Options.MaxPrefixes", ErrFull,
				p.m.MaxEntries())
		} else if err != nil {
			return err
		}
		p.have[w] = in
	}
	return nil
}

// keep deletes the prefixes that are not in next.
func (p *prefixes) keep(next map[netip.Prefix]uint32) error {
	for h := range p.have {
		if _, stays := next[h]; stays {
			continue
		}
		if err := p.m.Delete(p.key(h)); err != nil {
			return err
		}
		delete(p.have, h)
	}
	return nil
}

func (p *prefixes) key(of netip.Prefix) *steerPrefix {
	k := &steerPrefix{Bits: uint32(32 + of.Bits()), Vlan: uint32(p.vlan)}
	if of.Addr().Is4() {
		k.Bits += 96
	}
	b := of.Addr().As16()
	for i := range k.Address.Word {
		k.Address.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return k
}

// SetLocal sets the addresses of this host, which listeners for any address serve. It replaces the addresses of the
// previous call. By default there are none. Error: [ErrFull]; then some of addrs are missing.
func (v *VLAN) SetLocal(addrs []netip.Prefix) error {
	return v.changeSettings("local addresses", func() error {
		return errors.Join(v.local.replace(addrs), v.bumpGeneration())
	})
}

// changeSettings runs f, which changes the settings of the VLAN, while it holds v.s.mu. what names the setting in
// errors.
func (v *VLAN) changeSettings(what string, f func() error) error {
	return v.s.whileOpen(func() error {
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		return f()
	}, "%s", what)
}

// SetPeers limits listeners to peers in the prefixes from: segments to listeners from other addresses are dropped as
// [DropPeer]. Flows are not affected. An empty list allows all peers, which is the default. Error: [ErrFull]; then some
// of the prefixes are missing.
func (v *VLAN) SetPeers(from []netip.Prefix) error {
	return v.changeSettings("peers", func() error {
		if len(from) == 0 {
			return errors.Join(v.setOnlyPeers(0), v.peers.replace(nil))
		}
		if err := v.peers.replace(from); err != nil {
			return err
		}
		return v.setOnlyPeers(1)
	})
}

// SetProtected sets the addresses whose connections IPsec protects. Unencrypted segments from these addresses are
// dropped as [DropClear] if they match a flow or listener. A prefix with the value false is an exception from shorter
// prefixes. Error: [ErrFull]; then some prefixes are missing.
func (v *VLAN) SetProtected(from map[netip.Prefix]bool) error {
	return v.changeSettings("protected addresses", func() error {
		if v.settings.Protect = 0; len(from) > 0 {
			v.settings.Protect = 1
		}
		return errors.Join(v.protected.replaceWith(from), v.writeSettings())
	})
}

// SetMAC sets the Ethernet address of the interface: listeners claim no frames to other addresses. [Steering.Attach]
// sets it for frames without a VLAN.
func (v *VLAN) SetMAC(mac [6]byte) error {
	return v.changeSettings("Ethernet address", func() error { return v.setMAC(mac) })
}

// setMAC is SetMAC. The caller holds v.s.mu.
func (v *VLAN) setMAC(mac [6]byte) error {
	for i := range v.settings.Mac.Word {
		v.settings.Mac.Word[i] = binary.NativeEndian.Uint16(mac[2*i:])
	}
	return v.writeSettings()
}

func (v *VLAN) setOnlyPeers(on uint8) error {
	v.settings.OnlyPeers = on
	return v.writeSettings()
}

// bumpGeneration makes the listeners that the program has cached invalid, after a change of listeners or local
// addresses. The caller holds v.s.mu.
func (v *VLAN) bumpGeneration() error {
	v.s.generation = max(1, v.s.generation+1)
	v.settings.Generation = v.s.generation
	return v.writeSettings()
}

// setTick tells the program the length of the kernel's tick, which is the resolution of the kernel's coarse clocks.
func (v *VLAN) setTick() error {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("the kernel's tick: %w", err)
	}
	v.settings.TickNs = uint32(tick.Nano())
	return v.writeSettings()
}

func (v *VLAN) writeSettings() error {
	return v.s.objs.Settings.Update(uint32(v.id), &v.settings, ebpf.UpdateAny)
}
