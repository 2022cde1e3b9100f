package topo

import (
	"errors"
	"fmt"
)

// NewMiddle makes only the namespace of a relay, for hosts that are virtual machines. makeLinks runs in the namespace
// and makes the links named toA and toB. NewMiddle then sets their MTU. The caller closes the Middle.
func NewMiddle(mtu int, toA, toB string, makeLinks func() error) (m *Middle, err error) {
	n, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	m = &Middle{Namespace: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	if err = n.Do(func() error { return errors.Join(silence(), makeLinks()) }); err != nil {
		return m, fmt.Errorf("topo: a relay's namespace: %w", err)
	}
	if m.ToA, err = n.upAt(toA, mtu); err == nil {
		m.ToB, err = n.upAt(toB, mtu)
	}
	return m, err
}

func (n *Namespace) upAt(name string, mtu int) (Link, error) {
	l, err := n.nl.LinkByName(name)
	if err == nil {
		err = n.nl.LinkSetMTU(l, mtu)
	}
	if err != nil {
		return Link{}, fmt.Errorf("topo: MTU of %s: %w", name, err)
	}
	return n.up(name)
}

// Close removes a Middle that NewMiddle made, and its links.
func (m *Middle) Close() error { return errors.Join(m.removeLinks(), m.Namespace.Close()) }
