package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Mode is where in the receive path a program runs.
type Mode uint8

const (
	ModeAuto    Mode = iota // native, or generic where the driver refuses native
	ModeNative              // in the driver
	ModeGeneric             // behind the driver, on socket buffers: slower, may show super-frames, disorders veth
)

// String returns "auto", "native" or "generic".
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeNative:
		return "native"
	case ModeGeneric:
		return "generic"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Attachment says where and how a program is attached.
type Attachment struct {
	Ifindex   int
	Interface string // name when it was attached
	Mode      Mode   // ModeNative or ModeGeneric
	NativeErr error  // why ModeAuto fell back to generic, for the log; else nil
	ProgramID uint32
	LinkID    uint32
}

// Attach runs the program on an interface of the calling thread's network namespace until [Steering.Detach],
// [Steering.Close] or the end of the process, with the Ethernet address that the interface has now (see
// [Steering.SetMAC]). It replaces nothing: another program gives a [*ForeignProgramError]. With ModeAuto the
// caller should log Attachment.NativeErr when there is one.
func (s *Steering) Attach(ifindex int, mode Mode) (Attachment, error) {
	if err := s.enter(); err != nil {
		return Attachment{}, err
	}
	defer s.life.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		return Attachment{}, fmt.Errorf("bpf: attached to %s already: one Steering serves one "+
			"interface", s.att.Interface)
	}
	if mode > ModeGeneric {
		return Attachment{}, fmt.Errorf("bpf: attach: unknown %s", mode)
	}
	nic, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return Attachment{}, fmt.Errorf("bpf: attach to interface %d: %w: is it in this network "+
			"namespace?", ifindex, err)
	}
	att := Attachment{Ifindex: ifindex, Interface: nic.Attrs().Name}
	if err := foreign(nic); err != nil {
		return Attachment{}, err
	}
	if mac := nic.Attrs().HardwareAddr; len(mac) == 6 {
		if err := s.setMAC([6]byte(mac)); err != nil {
			return Attachment{}, fmt.Errorf("bpf: Ethernet address: %w", err)
		}
	}

	if mode != ModeGeneric {
		if err = membersOnly(nic); err == nil {
			err = s.attach(&att, nic.Attrs().MTU, ModeNative)
		}
		if err == nil {
			return att, nil
		}
		if mode == ModeNative || !genericMayHelp(err) {
			return Attachment{}, err
		}
		att.NativeErr = err
	}
	if err := s.attach(&att, nic.Attrs().MTU, ModeGeneric); err != nil {
		return Attachment{}, errors.Join(err, att.NativeErr)
	}
	return att, nil
}

// attach makes the link in one mode and completes att. The caller holds the lock.
func (s *Steering) attach(att *Attachment, mtu int, mode Mode) error {
	flags := link.XDPDriverMode
	if mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: s.objs.XwarpSteer, Interface: att.Ifindex,
		Flags: flags})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		// Somebody was faster, after the check in Attach.
		if nic, lookup := netlink.LinkByIndex(att.Ifindex); lookup == nil {
			if found := foreign(nic); found != nil {
				return found
			}
		}
	}
	if err != nil {
		return fmt.Errorf("bpf: attach to %s in %s mode: %w", att.Interface, mode,
			attachHint(err, mtu))
	}
	info, err := l.Info()
	if err != nil {
		return errors.Join(fmt.Errorf("bpf: attach to %s: link: %w", att.Interface, err), l.Close())
	}
	att.Mode, att.ProgramID, att.LinkID = mode, uint32(info.Program), uint32(info.ID)
	s.link, s.att = l, *att
	return nil
}

// membersOnly returns why native mode is of no use on an interface that hands programs on to others: AF_XDP
// sockets take frames of their own interface only, and claimed frames would be dropped.
func membersOnly(nic netlink.Link) error {
	if nic.Type() != "bond" {
		return nil
	}
	return fmt.Errorf("bpf: attach to %s in native mode: %w: a bond runs the program on its "+
		"members, and their frames cannot go to sockets of the bond: "+
		"allow generic mode, or use one member", nic.Attrs().Name, unix.EOPNOTSUPP)
}

// genericMayHelp reports whether a failure of native mode lies in the driver.
func genericMayHelp(err error) bool {
	if _, ok := errors.AsType[*ForeignProgramError](err); ok {
		return false
	}
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENODEV, unix.EBUSY, unix.EEXIST} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}

// Attached returns the attachment, and false when there is none: never made, detached, or ended by the kernel
// because the interface went away or because somebody detached the link by force.
func (s *Steering) Attached() (Attachment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return Attachment{}, false
	}
	info, err := s.link.Info()
	if err != nil || info.XDP() == nil || info.XDP().Ifindex == 0 {
		return Attachment{}, false
	}
	return s.att, true
}

// Detach takes the program off its interface, so that every frame goes to the kernel. It keeps claims,
// sockets and counters; [Steering.Attach] may follow. Without attachment it does nothing.
func (s *Steering) Detach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil
	}
	err := s.link.Close()
	s.link, s.att = nil, Attachment{}
	if err != nil {
		return fmt.Errorf("bpf: detach: %w", err)
	}
	return nil
}

// foreign returns a [*ForeignProgramError] when an interface carries an XDP program.
func foreign(nic netlink.Link) error {
	xdp := nic.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return nil
	}
	e := &ForeignProgramError{Interface: nic.Attrs().Name, Ifindex: nic.Attrs().Index,
		ID: xdp.ProgId}
	switch xdp.AttachMode {
	case nl.XDP_ATTACHED_DRV:
		e.Mode = ModeNative
	case nl.XDP_ATTACHED_SKB:
		e.Mode = ModeGeneric
	}
	if prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(e.ID)); err == nil {
		if info, err := prog.Info(); err == nil {
			e.Name = info.Name
		}
		prog.Close()
	}
	return e
}
