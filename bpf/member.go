package bpf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/dispatcher"
)

// join makes the program a member of the interface's dispatcher and completes att. foreign describes the program that
// the interface has; if it is not libxdp's dispatcher, join returns foreign. The caller holds s.attaching.
func (s *Steering) join(att *Attachment, mode Mode, foreign *ForeignProgramError) error {
	if foreign.Name != dispatcher.ProgramName {
		return foreign
	}
	if mode != ModeAuto && mode != foreign.Mode {
		return fmt.Errorf("bpf: %s has libxdp's dispatcher in %s mode: set xdp_mode to %s or auto, "+
			"or load its programs in %s mode", att.Interface, foreign.Mode, foreign.Mode, mode)
	}
	m, err := dispatcher.Join(att.Ifindex, programName, s.loadMember)
	owned, _ := errors.AsType[*dispatcher.OwnedError](err)
	switch {
	case errors.Is(err, dispatcher.ErrNone):
		return foreign // another program has replaced the dispatcher
	case owned != nil:
		return &ForeignProgramError{Interface: att.Interface, Ifindex: att.Ifindex,
			ID: owned.Member.ID, Name: programName, Mode: foreign.Mode}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return hint(err, "joining libxdp's dispatcher needs root: in the unit User=root, "+
			"CAP_SYS_ADMIN in CapabilityBoundingSet and ProtectKernelTunables=no")
	case err != nil:
		return err
	}
	att.Mode = ModeGeneric
	if m.Native {
		att.Mode = ModeNative
	}
	att.ProgramID, att.Dispatched, att.Beside = m.ID, true, strings.Join(names(m.Beside), ", ")
	att.OneBuffer = withoutFrags(m)
	s.member, s.att = m, *att
	return nil
}

func names(members []dispatcher.Member) (list []string) {
	for _, m := range members {
		list = append(list, m.String())
	}
	return list
}

// withoutFrags returns the names of the other programs in a dispatcher that do not support frames of several buffers.
// They keep the dispatcher from accepting such frames.
func withoutFrags(m *dispatcher.Membership) string {
	list := slices.DeleteFunc(slices.Clone(m.Beside), dispatcher.Member.Frags)
	return strings.Join(names(list), ", ")
}

// loadMember loads the program again, with the same maps, as a replacement of a function of the dispatcher target.
func (s *Steering) loadMember(target *ebpf.Program, function string) (*ebpf.Program, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["in_dispatcher"].Set(uint32(1)); err != nil {
		return nil, err
	}
	same := map[string]*ebpf.Map{}
	maps := reflect.ValueOf(s.objs.steerMaps)
	for i := range maps.NumField() {
		name := maps.Type().Field(i).Tag.Get("ebpf")
		same[name] = maps.Field(i).Interface().(*ebpf.Map)
		spec.Maps[name].MaxEntries = same[name].MaxEntries()
	}
	p := spec.Programs[steerProgXwarpSteer]
	p.Type, p.AttachType, p.Flags = ebpf.Extension, ebpf.AttachNone, 0
	p.AttachTarget, p.AttachTo = target, function
	loaded, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: same})
	if err != nil {
		return nil, loadHint(err, Release())
	}
	defer loaded.Close()
	return loaded.DetachProgram(steerProgXwarpSteer), nil
}

// InDispatcher describes libxdp's dispatcher of an interface.
type InDispatcher struct {
	Programs string // the programs that it runs
	Ours     bool   // xwarp's program is one of them
	Left     bool   // the process of xwarp's program has ended: the program passes all frames to the kernel
}

// Dispatched returns libxdp's dispatcher of an interface. It returns nil if there is none, or if the process lacks
// CAP_SYS_ADMIN and so cannot see it.
func Dispatched(nic netlink.Link) (*InDispatcher, error) {
	if f := checkForeign(nic); f == nil || f.Name != dispatcher.ProgramName {
		return nil, nil
	}
	s, err := dispatcher.Look(nic.Attrs().Index)
	if err != nil || s == nil {
		return nil, err
	}
	d := &InDispatcher{Programs: strings.Join(names(s.Members), ", ")}
	for _, m := range s.Members {
		if m.Name == programName {
			alive, err := dispatcher.HasOwner(m.ID)
			if err != nil {
				return nil, err
			}
			d.Ours, d.Left = true, !alive
		}
	}
	return d, nil
}
