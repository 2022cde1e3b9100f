package xdp

import (
	"errors"
	"fmt"

	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/vlan"
)

// trunkOf is vlan.Trunk, unless a test replaces it.
var trunkOf = vlan.Trunk

// keepTags makes the drivers leave VLAN tags in received frames, because the steering program cannot see removed tags.
// The kernel's VLAN devices work with and without tags in the frames.
func (t *trunk) keepTags() error {
	if t.bond == nil {
		return t.keepTagsOn(t.att.Ifindex, t.name)
	}
	t.bond.mu.Lock()
	defer t.bond.mu.Unlock()
	t.bond.tagged = true
	var errs []error
	for _, m := range t.bond.members {
		errs = append(errs, t.keepTagsOn(m.Ifindex, m.Name))
	}
	return errors.Join(errs...)
}

func (t *trunk) keepTagsOn(ifindex int, name string) error {
	if err := t.restorer.SetFeature(ifindex, ethtool.VLANStripping, false); err != nil {
		return fmt.Errorf("cannot make %s keep the VLAN tags of received frames: %w (ethtool -K %s rxvlan off)",
			name, err, name)
	}
	return nil
}
