package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// prefixes is a set of addresses in the kernel: a map from struct prefix of maps.h to whether it is in the set.
type prefixes struct {
	m    *ebpf.Map
	have map[netip.Prefix]uint32
}

func newPrefixes(m *ebpf.Map) prefixes { return prefixes{m, map[netip.Prefix]uint32{}} }

// mapped is the part of the IPv6 addresses that stands for IPv4. It is always there, so that a prefix of IPv6
// addresses which covers it does not stand for IPv4 addresses too.
var mapped = netip.MustParsePrefix("0.0.0.0/0")

// replace makes the set what want says. What is in both stays in all the time.
func (p *prefixes) replace(want []netip.Prefix) error {
	next := map[netip.Prefix]uint32{mapped: 0}
	for _, w := range want {
		if !w.IsValid() {
			return fmt.Errorf("prefix %v is none", w)
		}
		if a := w.Addr(); a.Is4In6() && w.Bits() >= 96 {
			w = netip.PrefixFrom(a.Unmap(), w.Bits()-96)
		}
		next[w.Masked()] = 1
	}
	for h := range p.have {
		if _, stays := next[h]; stays {
			continue
		}
		if err := p.m.Delete(makePrefix(h)); err != nil {
			return err
		}
		delete(p.have, h)
	}
	for w, in := range next {
		if now, ok := p.have[w]; ok && now == in {
			continue
		}
		if err := p.m.Update(makePrefix(w), in, ebpf.UpdateAny); errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%w at %d entries: raise Options.MaxPrefixes", ErrFull,
				p.m.MaxEntries())
		} else if err != nil {
			return err
		}
		p.have[w] = in
	}
	return nil
}

func makePrefix(p netip.Prefix) *steerPrefix {
	k := &steerPrefix{Bits: uint32(p.Bits())}
	if p.Addr().Is4() {
		k.Bits += 96
	}
	b := p.Addr().As16()
	for i := range k.Address.Word {
		k.Address.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return k
}

// SetLocal says which addresses are this host's: those that listeners of any address serve. It replaces what
// was said before; in the beginning there are none. Error: [ErrFull]; some of addrs are missing then.
func (s *Steering) SetLocal(addrs []netip.Prefix) error {
	return s.set("local addresses", func() error {
		return errors.Join(s.local.replace(addrs), s.renew())
	})
}

// set runs f, which says anew what the program goes by.
func (s *Steering) set(what string, f func() error) error {
	return s.use(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return f()
	}, "%s", what)
}

// SetPeers says whom listeners serve: segments to them from other addresses are dropped as [DropPeer]. Exact
// flows are not asked. None means everybody, as in the beginning. Error: [ErrFull]; some of from are missing
// then.
func (s *Steering) SetPeers(from []netip.Prefix) error {
	return s.set("peers", func() error {
		if len(from) == 0 {
			return errors.Join(s.setOnlyPeers(0), s.peers.replace(nil))
		}
		if err := s.peers.replace(from); err != nil {
			return err
		}
		return s.setOnlyPeers(1)
	})
}

// SetMAC says which Ethernet address the interface has: listeners are not given frames for others.
// [Steering.Attach] says so the first time.
func (s *Steering) SetMAC(mac [6]byte) error {
	return s.set("Ethernet address", func() error { return s.setMAC(mac) })
}

// setMAC needs the lock.
func (s *Steering) setMAC(mac [6]byte) error {
	for i := range s.settings.Mac.Word {
		s.settings.Mac.Word[i] = binary.NativeEndian.Uint16(mac[2*i:])
	}
	return s.writeSettings()
}

func (s *Steering) setOnlyPeers(on uint16) error {
	s.settings.OnlyPeers = on
	return s.writeSettings()
}

// renew says that listeners or local addresses changed: what the program remembers of them counts no more. It needs the
// lock, and comes after the change.
func (s *Steering) renew() error {
	s.settings.Generation = max(1, s.settings.Generation+1)
	return s.writeSettings()
}

// setTick says how long the kernel's tick is, which is what its coarse clocks go by.
func (s *Steering) setTick() error {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("the kernel's tick: %w", err)
	}
	s.settings.TickNs = uint32(tick.Nano())
	return s.writeSettings()
}

func (s *Steering) writeSettings() error {
	return s.objs.Settings.Update(uint32(0), &s.settings, ebpf.UpdateAny)
}
