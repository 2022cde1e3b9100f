package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// VLAN holds the claims and settings for the frames of one VLAN, or for frames without a VLAN. Its methods may be
// called by several goroutines at once.
type VLAN struct {
	s  *Steering
	id uint16 // 0: frames without a tag, or with a priority tag, whose identifier is 0

	// guarded by s.mu
	settings     steerSettings
	local, peers prefixes
	protected    prefixes
}

// MaxVLAN is the highest identifier of a VLAN (IEEE 802.1Q, 9.6).
const MaxVLAN = 4094

// OpenVLAN opens the VLAN with the 802.1Q identifier id, 1 to [MaxVLAN], so that its frames can be claimed. It has no
// claims at first. Frames of VLANs that are not open go to the kernel. With id 0 it returns Steering.VLAN.
func (s *Steering) OpenVLAN(id uint16) (v *VLAN, err error) {
	err = s.whileOpen(func() error {
		switch {
		case id > MaxVLAN:
			return fmt.Errorf("use 1 to %d", MaxVLAN)
		case id == 0:
			v = s.VLAN
			return nil
		}
		v, err = s.openVLAN(id)
		return err
	}, "VLAN %d", id)
	return v, err
}

func (s *Steering) openVLAN(id uint16) (*VLAN, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &VLAN{s: s, id: id, local: newPrefixes(s.objs.LocalPrefixes, id),
		peers: newPrefixes(s.objs.Peers, id), protected: newPrefixes(s.objs.MustProtect, id)}
	if err := v.init(); err != nil {
		return nil, errors.Join(err, v.clearMaps())
	}
	return v, nil
}

// init writes the initial settings. The caller holds v.s.mu.
func (v *VLAN) init() error {
	v.settings.Vlan = v.id
	return errors.Join(v.local.replace(nil), v.peers.replace(nil), v.protected.replace(nil),
		v.setTick(), v.bumpGeneration())
}

// Close removes the claims and settings of v, whose frames then go to the kernel. Steering.VLAN stays open, without
// claims.
func (v *VLAN) Close() error {
	return v.s.whileOpen(func() error {
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		err := v.clearMaps()
		if v.id == 0 {
			err = errors.Join(err, v.init())
		}
		return err
	}, "VLAN %d", v.id)
}

// clearMaps removes the settings and claims of v from the maps. It begins with the settings, without which the program
// claims no frames of the VLAN. The caller holds v.s.mu.
func (v *VLAN) clearMaps() error {
	v.settings = steerSettings{}
	o := &v.s.objs
	return errors.Join(v.writeSettings(), v.local.keep(nil), v.peers.keep(nil),
		v.protected.keep(nil),
		clearVLAN(o.Flows, func(k *flowKey) bool { return k.vlan() == uint32(v.id) }),
		clearVLAN(o.Sas, func(k *saKey) bool { return k.vlan() == uint32(v.id) }),
		clearVLAN(o.Listeners, func(k *listenerKey) bool { return k.vlan() == v.id }))
}

// clearVLAN deletes the entries for which ours returns true from a map with keys of type K.
func clearVLAN[K any](m *ebpf.Map, ours func(*K) bool) error {
	var keys []K // collected first, because deleting the current entry restarts the iteration
	var k K
	var v uint32
	all := m.Iterate()
	for all.Next(&k, &v) {
		if ours(&k) {
			keys = append(keys, k)
		}
	}
	err := all.Err()
	for i := range keys {
		if e := removeClaim(m, &keys[i]); e != nil && !errors.Is(e, ErrNotClaimed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
