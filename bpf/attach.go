package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/bpf/dispatcher"
)

// Mode is the place in the receive path where a program runs.
type Mode uint8

const (
	ModeAuto    Mode = iota // native, or generic if the driver refuses native
	ModeNative              // in the driver
	ModeGeneric             // after the driver, on socket buffers: slower, may see merged frames, reorders on veth
)

var modeNames = [...]string{ModeAuto: "auto", ModeNative: "native", ModeGeneric: "generic"}

// String returns "auto", "native" or "generic".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText returns the name of m, for flags and files.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText sets m to the mode with the given name, as MarshalText returns it.
func (m *Mode) UnmarshalText(text []byte) error {
	i := slices.Index(modeNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("bpf: mode %q is not auto, native or generic", text)
	}
	*m = Mode(i)
	return nil
}

// Attachment describes where and how a program is attached.
type Attachment struct {
	Ifindex   int
	Interface string // name at the time of Attach
	Mode      Mode   // ModeNative or ModeGeneric
	NativeErr error  // why ModeAuto fell back to generic mode, for the log; else nil
	ProgramID uint32
	LinkID    uint32 // 0 in a dispatcher

	// These describe libxdp's dispatcher.
	Dispatched bool   // the program runs in a dispatcher
	Beside     string // the other programs in the dispatcher when this one joined
	OneBuffer  string // those of Beside that restrict the dispatcher to frames of one buffer
}

// Attach runs the program on an interface of the calling thread's network namespace until [Steering.Detach],
// [Steering.Close] or the end of the process. It sets the Ethernet address that the interface has now (see
// [Steering.SetMAC]). If the interface has libxdp's dispatcher, the program joins it. If it has another program, Attach
// fails with a [*ForeignProgramError]. With ModeAuto the caller should log Attachment.NativeErr if it is not nil.
func (s *Steering) Attach(ifindex int, mode Mode) (Attachment, error) {
	if err := s.lockOpen(); err != nil {
		return Attachment{}, err
	}
	defer s.life.RUnlock()
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if s.link != nil || s.member != nil {
		return Attachment{}, fmt.Errorf("bpf: already attached to %s: one Steering serves one "+
			"interface", s.att.Interface)
	}
	return s.attachTo(ifindex, mode)
}

// attachTo is Attach. The caller holds s.attaching.
func (s *Steering) attachTo(ifindex int, mode Mode) (Attachment, error) {
	if mode > ModeGeneric {
		return Attachment{}, fmt.Errorf("bpf: attach: unknown %s", mode)
	}
	nic, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return Attachment{}, fmt.Errorf("bpf: attach to interface %d: %w (is it in this network "+
			"namespace?)", ifindex, err)
	}
	att := Attachment{Ifindex: ifindex, Interface: nic.Attrs().Name}
	foreign := checkForeign(nic)
	if foreign != nil && foreign.ID == 0 {
		return Attachment{}, foreign
	}
	if mac := nic.Attrs().HardwareAddr; len(mac) == 6 && s.VLAN.s == s { // a twin has no settings of its own
		s.mu.Lock()
		err := s.setMAC([6]byte(mac))
		s.mu.Unlock()
		if err != nil {
			return Attachment{}, fmt.Errorf("bpf: Ethernet address: %w", err)
		}
	}

	if foreign != nil {
		if foreign.Name == dispatcher.ProgramName && foreign.Mode == ModeNative {
			if err := refuseBond(nic); err != nil {
				return Attachment{}, err
			}
		}
		if err := s.join(&att, mode, foreign); err != nil {
			return Attachment{}, err
		}
		return att, nil
	}
	if mode != ModeGeneric {
		if err = refuseBond(nic); err == nil {
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

// attach creates the link in one mode and completes att. The caller holds s.attaching.
func (s *Steering) attach(att *Attachment, mtu int, mode Mode) error {
	flags := link.XDPDriverMode
	if mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: s.objs.XwarpSteer, Interface: att.Ifindex,
		Flags: flags})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		// Another program was attached after the check in Attach.
		if nic, lookup := netlink.LinkByIndex(att.Ifindex); lookup == nil {
			if found := checkForeign(nic); found != nil {
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

// refuseBond returns an error if the interface is a bond, which in native mode runs a program on its members. AF_XDP
// sockets accept only frames of their own interface, so claimed frames would be dropped.
func refuseBond(nic netlink.Link) error {
	if nic.Type() != "bond" {
		return nil
	}
	return fmt.Errorf("bpf: attach to %s in native mode: %w: a bond runs the program on its "+
		"members, whose frames cannot reach sockets of the bond: "+
		"allow generic mode, or use one member", nic.Attrs().Name, unix.EOPNOTSUPP)
}

// genericMayHelp reports whether err, from native mode, may be due to the driver: then generic mode may work.
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

// Attached returns the attachment. It returns false before Attach, after Detach, and if the program is detached because
// the interface disappeared or because another process detached it by force. In a dispatcher, Attached notices this
// only with the privileges that Attach needed, or if the interface has no program at all.
func (s *Steering) Attached() (Attachment, bool) {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if !s.isAttached() {
		return Attachment{}, false
	}
	return s.att, true
}

// isAttached reports whether the program is attached. The caller holds s.attaching.
func (s *Steering) isAttached() bool {
	if s.member != nil {
		return s.member.Joined()
	}
	if s.link == nil {
		return false
	}
	info, err := s.link.Info()
	return err == nil && info.XDP() != nil && info.XDP().Ifindex != 0
}

// Reattach attaches the program again, in the same mode, if another process has detached it. It reports whether it
// attached the program. Errors are those of [Steering.Attach]; Reattach may then be called again. Without a previous
// Attach it does nothing.
func (s *Steering) Reattach() (bool, error) {
	if err := s.lockOpen(); err != nil {
		return false, err
	}
	defer s.life.RUnlock()
	s.attaching.Lock()
	defer s.attaching.Unlock()
	was := s.att
	if was.Ifindex == 0 || s.isAttached() {
		return false, nil
	}
	err := s.detach()
	s.att = was
	if err != nil {
		return false, err
	}
	_, err = s.attachTo(was.Ifindex, was.Mode)
	return err == nil, err
}

// Detach removes the program from its interface, so that every frame goes to the kernel, and undoes
// [Steering.HoldResets]. Claims, sockets and counters are kept, and [Steering.Attach] may follow. Detach does nothing
// without an attachment and held resets.
func (s *Steering) Detach() error {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	return errors.Join(s.detach(), s.releaseResets())
}

// detach is Detach, except that resets stay held. The caller holds s.attaching.
func (s *Steering) detach() (err error) {
	switch {
	case s.member != nil:
		err = s.member.Leave()
	case s.link != nil:
		err = s.link.Close()
	}
	s.link, s.member, s.att = nil, nil, Attachment{}
	if err != nil {
		return fmt.Errorf("bpf: detach: %w", err)
	}
	return nil
}

// checkForeign returns a [*ForeignProgramError] if an interface has an XDP program, otherwise nil.
func checkForeign(nic netlink.Link) *ForeignProgramError {
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
