// Package dispatcher runs an XDP program beside programs of other owners on one interface, by the protocol of libxdp.
//
// The XDP program of such an interface is a dispatcher. It calls up to ten programs, its members, which replace its
// functions prog0, prog1, … (freplace). The number of members is fixed when a dispatcher is loaded. A change of the
// members therefore loads a new dispatcher, attaches all members to it too, and replaces the old dispatcher on the
// interface by it. Links and members are pinned in the directory xdp of the BPF file system. A lock on that directory
// serialises changes of the pins. libxdp replaces dispatchers without the lock, so each replacement names the old
// dispatcher, and fails if the interface has another one.
package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ProgramName is the name of every dispatcher in the kernel.
const ProgramName = "xdp_dispatcher"

// Member is a program that a dispatcher runs.
type Member struct {
	Name     string // in the kernel, at most 15 bytes
	ID       uint32
	Priority uint32 // a program with a lower number runs earlier

	actions, flags uint32
	prog           *ebpf.Program
}

// Frags reports whether the program supports frames of several buffers.
func (m Member) Frags() bool { return m.flags&unix.BPF_F_XDP_HAS_FRAGS != 0 }

// String returns the name and the priority, in the form of the documentation and of messages.
func (m Member) String() string { return fmt.Sprintf("%s (priority %d)", m.Name, m.Priority) }

// State is a dispatcher that is attached to an interface.
type State struct {
	Members []Member // in the order in which they run

	nic    string
	index  int // of nic
	id     uint32
	mode   uint32 // XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE: the mode in which it is attached
	config config
	prog   *ebpf.Program
}

// close closes the file descriptors of the dispatcher and of its members.
func (s *State) close() {
	s.prog.Close()
	for _, m := range s.Members {
		m.prog.Close()
	}
}

// Look returns the dispatcher of an interface of the calling thread's network namespace. It returns nil if the
// interface does not exist or has no dispatcher. It needs CAP_SYS_ADMIN. It returns a [*VersionError] for a dispatcher
// of an unsupported version.
func Look(ifindex int) (*State, error) {
	s, err := read(ifindex)
	if s == nil {
		return nil, err
	}
	s.close()
	return s, nil
}

// read is Look, except that the programs of the result stay open until close.
func read(ifindex int) (s *State, err error) {
	nic, err := netlink.LinkByIndex(ifindex)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	xdp := nic.Attrs().Xdp
	if xdp == nil || !xdp.Attached || xdp.ProgId == 0 {
		return nil, nil
	}
	s = &State{nic: nic.Attrs().Name, index: ifindex, id: xdp.ProgId,
		mode: nl.XDP_FLAGS_DRV_MODE}
	if xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		s.mode = nl.XDP_FLAGS_SKB_MODE
	}
	if s.prog, err = ebpf.NewProgramFromID(ebpf.ProgramID(s.id)); err != nil {
		return nil, fmt.Errorf("bpf: program %d of %s: %w", s.id, s.nic, err)
	}
	found, err := s.fill()
	if err != nil || !found {
		s.close()
		return nil, err
	}
	return s, nil
}

// fill sets s.config and s.Members from the kernel and the pins. It returns false if s.prog is not a dispatcher.
func (s *State) fill() (bool, error) {
	info, err := s.prog.Info()
	if err != nil {
		return false, err
	}
	maps, _ := info.MapIDs()
	if info.Name != ProgramName || len(maps) != 1 {
		return false, nil
	}
	m, err := ebpf.NewMapFromID(maps[0])
	if err != nil {
		return false, fmt.Errorf("bpf: configuration of the dispatcher of %s: %w", s.nic, err)
	}
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return false, fmt.Errorf("bpf: configuration of the dispatcher of %s: %w", s.nic, err)
	}
	if s.config, err = decode(s.nic, b); err != nil {
		return false, err
	}
	if s.config.bound {
		return false, fmt.Errorf("bpf: the dispatcher of %s has programs for this device only, "+
			"which xwarp cannot join: load them without --device-bound", s.nic)
	}
	dir := s.pinsOf(s.id)
	for i, slot := range s.config.slots {
		member, err := loadPinned(filepath.Join(dir, fmt.Sprintf("prog%d-prog", i)))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: xwarp must see the BPF file system of the owner (mount -t bpf "+
				"bpf /sys/fs/bpf; LIBXDP_BPFFS)", err)
		}
		if err != nil {
			return false, fmt.Errorf("bpf: programs of the dispatcher of %s: %w", s.nic, err)
		}
		member.Priority, member.actions, member.flags = slot.priority, slot.actions, slot.flags
		s.Members = append(s.Members, member)
	}
	return true, nil
}

func loadPinned(path string) (m Member, err error) {
	pinned, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return m, err
	}
	defer pinned.Close()
	if m.prog, err = pinned.Clone(); err != nil { // a program that knows its pin would move it in Pin
		return m, err
	}
	if err := m.describe(); err != nil {
		m.prog.Close()
		return m, err
	}
	return m, nil
}

// describe sets m.Name and m.ID to those of the program in the kernel.
func (m *Member) describe() error {
	info, err := m.prog.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	m.Name, m.ID = info.Name, uint32(id)
	return nil
}

// order sorts members as libxdp does: by priority, then by name. Members with the same priority and name keep their
// order.
func order(members []Member) {
	slices.SortStableFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
}

// exchange replaces the dispatcher on the interface by one with the given members. Without members it removes the
// dispatcher. load loads the program of a member that has none yet. The caller holds the lock of lockPins.
func (s *State) exchange(members []Member, load Loader) error {
	if len(members) > maxPrograms {
		return fmt.Errorf("bpf: the dispatcher of %s already runs %d programs: unload one "+
			"(xdp-loader status %s)", s.nic, len(s.Members), s.nic)
	}
	if len(members) == 0 {
		if err := swap(s.index, nil, s.prog, s.mode); err != nil {
			return fmt.Errorf("bpf: detach the dispatcher of %s: %w", s.nic, err)
		}
		return unpin(s.pinsOf(s.id))
	}
	next, links, err := s.build(members, load)
	defer func() {
		for _, l := range links {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	defer next.Close()
	info, err := next.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	dir := s.pinsOf(uint32(id))
	if err := pin(dir, members, links); err != nil {
		return errors.Join(fmt.Errorf("bpf: pin the programs of %s: %w", s.nic, err), unpin(dir))
	}
	if err := swap(s.index, next, s.prog, s.mode); err != nil {
		return errors.Join(s.swapHint(err, members), unpin(dir))
	}
	return unpin(s.pinsOf(s.id))
}

// loadEmpty loads a dispatcher without programs.
func (s *State) loadEmpty(c config) (*ebpf.Program, error) {
	spec, err := loadDispatcher()
	if err != nil {
		return nil, fmt.Errorf("bpf: embedded dispatcher: %w", err)
	}
	rodata, b := spec.Maps[".rodata"], c.encode()
	rodata.Key, rodata.Value, rodata.ValueSize = nil, nil, uint32(len(b)) // the BTF types also give the size
	rodata.Contents = []ebpf.MapKV{{Key: uint32(0), Value: b}}
	if c.frags {
		spec.Programs[ProgramName].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("bpf: load a dispatcher for %s: %w", s.nic, err)
	}
	defer loaded.Close()
	return loaded.DetachProgram(ProgramName), nil
}

// build loads a dispatcher of the same version as s and attaches the members to it. The caller closes links, also after
// an error.
func (s *State) build(members []Member, load Loader) (prog *ebpf.Program, links []link.Link,
	err error) {
	c := config{version: s.config.version, frags: haveFrags(members)}
	for _, m := range members {
		c.slots = append(c.slots, slot{m.actions, m.Priority, m.flags})
	}
	if prog, err = s.loadEmpty(c); err != nil {
		return nil, nil, err
	}
	for i := range members {
		m, function := &members[i], fmt.Sprintf("prog%d", i)
		if m.prog == nil {
			if m.prog, err = load(prog, function); err == nil {
				err = m.describe()
			}
		}
		var l link.Link
		if err == nil {
			l, err = link.AttachFreplace(prog, function, m.prog)
		}
		if err != nil {
			prog.Close()
			return nil, links, fmt.Errorf("bpf: attach %q to the dispatcher of %s: %w", m.Name,
				s.nic, attachHint(err))
		}
		links = append(links, l)
	}
	return prog, links, nil
}

// haveFrags reports whether all members support frames of several buffers.
func haveFrags(members []Member) bool {
	return !slices.ContainsFunc(members, func(m Member) bool { return !m.Frags() })
}

func attachHint(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: needs CAP_SYS_ADMIN, CAP_BPF and CAP_PERFMON, and a kernel that "+
			"allows programs of the type EXT", err)
	}
	return err
}

// swapHint adds to an error of swap what the user can do.
func (s *State) swapHint(err error, members []Member) error {
	err = fmt.Errorf("bpf: replace the dispatcher of %s: %w", s.nic, err)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: it is attached by a BPF link, whose owner must end it "+
			"(bpftool link)", err)
	}
	for _, m := range members {
		if !m.Frags() && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %s does not support frames of several buffers, which the MTU "+
				"may need: lower the MTU of %s, or unload it (xdp-loader unload %s --id %d)", err,
				m.Name, s.nic, s.nic, m.ID)
		}
	}
	return err
}

// swap replaces the program old of an interface by next, or removes old if next is nil. It fails with EEXIST if old is
// not the program of the interface.
func swap(ifindex int, next, old *ebpf.Program, mode uint32) error {
	fd := int32(-1)
	if next != nil {
		fd = int32(next.FD())
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	req.AddData(msg)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	for _, a := range []struct {
		kind  int
		value uint32
	}{{unix.IFLA_XDP_FD, uint32(fd)}, {unix.IFLA_XDP_FLAGS, mode | unix.XDP_FLAGS_REPLACE},
		{unix.IFLA_XDP_EXPECTED_FD, uint32(old.FD())}} {
		xdp.AddRtAttr(a.kind, nl.Uint32Attr(a.value))
	}
	req.AddData(xdp)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// fileSystem returns the directory of the BPF file system. libxdp uses the same environment variable.
func fileSystem() string { return cmp.Or(os.Getenv("LIBXDP_BPFFS"), "/sys/fs/bpf") }

// lockPins waits for the lock on the directory of all pins. Closing the result releases the lock.
func lockPins() (*os.File, error) {
	f, err := os.Open(filepath.Join(fileSystem(), "xdp"))
	if err != nil {
		return nil, fmt.Errorf("bpf: pins of libxdp: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("bpf: lock of libxdp: %w", err)
	}
	return f, nil
}

// pinsOf returns the directory for the pins of a dispatcher's members. The dispatcher is given by its program ID.
func (s *State) pinsOf(dispatcher uint32) string {
	return filepath.Join(fileSystem(), "xdp", fmt.Sprintf("dispatch-%d-%d", s.index, dispatcher))
}

func pin(dir string, members []Member, links []link.Link) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i := range members {
		at := filepath.Join(dir, fmt.Sprintf("prog%d-", i))
		if err := links[i].Pin(at + "link"); err != nil {
			return err
		}
		p, err := members[i].prog.Clone()
		if err != nil {
			return err
		}
		err = p.Pin(at + "prog")
		p.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// unpin removes the pins of a dispatcher's members. The kernel then frees the dispatcher if it is not attached.
func unpin(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("bpf: unpin: %w", err)
	}
	return nil
}

// The generated files are committed, so building needs no clang. The same clang produces the same bytes.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package dispatcher -tags linux -target bpfel,bpfeb dispatcher dispatcher.c -- -Wall -Wextra -Werror -Wno-unused-function -mcpu=v3
