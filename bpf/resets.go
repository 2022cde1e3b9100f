package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HoldResets drops the resets with which the host's kernel answers claimed segments, if it sends them through an
// interface of the calling thread's network namespace, until [Steering.Detach]. A bond needs this: its kernel receives
// frames on a new member that has no program yet. Its program runs before others of the interface.
func (s *Steering) HoldResets(ifindex int) error {
	return s.whileOpen(func() error {
		s.attaching.Lock()
		defer s.attaching.Unlock()
		if s.resets != nil {
			return errors.New("already held on an interface")
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex,
			Program: s.objs.XwarpHoldReset, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		if err == nil {
			s.resets = l
		}
		return err
	}, "hold resets on interface %d", ifindex)
}

// releaseResets undoes HoldResets. The caller holds the lock.
func (s *Steering) releaseResets() error {
	if s.resets == nil {
		return nil
	}
	err := s.resets.Close()
	if s.resets = nil; err != nil {
		return fmt.Errorf("bpf: release resets: %w", err)
	}
	return nil
}
