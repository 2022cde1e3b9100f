// Package bond follows the members of the kernel's bonds.
package bond

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netwatch"
	"xwarp/ring"
)

// State is a snapshot of a bond.
type State struct {
	Mode    netlink.BondMode
	Policy  ring.Policy
	MTU     int
	Members []Member // in order of interface index
}

// Member is an interface of a bond.
type Member struct {
	Name    string
	Ifindex int
	MTU     int
	// Sends says that the bond sends on the member: it is up, its link is up, and the bond has it active. In the mode
	// 802.3ad it must also belong to the active aggregator.
	Sends bool
}

// Senders returns the interface indexes of the members on which the bond sends.
func (s *State) Senders() (list []int) {
	for _, m := range s.Members {
		if m.Sends {
			list = append(list, m.Ifindex)
		}
	}
	return list
}

// CheckMode returns why sockets of the members cannot serve a bond of a mode, or nil.
func CheckMode(m netlink.BondMode) error {
	switch m {
	case netlink.BOND_MODE_ACTIVE_BACKUP, netlink.BOND_MODE_BALANCE_XOR,
		netlink.BOND_MODE_802_3AD:
		return nil
	}
	return fmt.Errorf("xwarp sends on the members of bonds in the modes active-backup, balance-xor and 802.3ad, not %v", m)
}

// ModeSteps returns the commands that set a bond to active-backup, a mode for which CheckMode returns nil. The kernel
// changes the mode of a bond only while it has no members.
func ModeSteps(name string) string {
	return fmt.Sprintf("ip link set NAME nomaster for each member; ip link set %[1]s down; "+
		"ip link set %[1]s type bond mode active-backup", name)
}

// Is reports whether an interface is a bond.
func Is(nic netlink.Link) bool { return nic.Type() == "bond" }

// dumps is how many times a dump is tried if changes interrupt it each time.
const dumps = 8

// Read returns the state of the bond with an interface index.
func Read(h *netlink.Handle, ifindex int) (*State, error) {
	nic, err := h.LinkByIndex(ifindex)
	if err != nil {
		return nil, err
	}
	b, ok := nic.(*netlink.Bond)
	if !ok {
		return nil, fmt.Errorf("%s is not a bond, but a %s", nic.Attrs().Name, nic.Type())
	}
	var links []netlink.Link
	for range dumps {
		if links, err = h.LinkList(); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return stateOf(b, links), nil
}

// stateOf finds the members of a bond among all interfaces.
func stateOf(b *netlink.Bond, links []netlink.Link) *State {
	s := &State{Mode: b.Mode, Policy: ring.Policy(b.XmitHashPolicy), MTU: b.MTU}
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex != b.Index {
			continue
		}
		m := Member{Name: a.Name, Ifindex: a.Index, MTU: a.MTU}
		if p, ok := a.Slave.(*netlink.BondSlave); ok {
			m.Sends = a.RawFlags&unix.IFF_UP != 0 && p.State == netlink.BondStateActive &&
				p.MiiStatus == netlink.BondLinkUp
			if b.Mode == netlink.BOND_MODE_802_3AD && b.AdInfo != nil {
				m.Sends = m.Sends && int(p.AggregatorId) == b.AdInfo.AggregatorId
			}
		}
		s.Members = append(s.Members, m)
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	return s
}

// Follower follows a bond until it is closed.
type Follower struct {
	ifindex int
	handle  *netlink.Handle
	watch   *netwatch.Watch
	read    Reader
	notify  func(*State)
	known   map[int]bool // indexes of the bond and of its members; owned by the goroutine of watch
}

// Reader is Read, or a replacement for tests.
type Reader func(h *netlink.Handle, ifindex int) (*State, error)

// Follow starts to follow the bond with an interface index, in the network namespace of the calling thread. notify is
// called before Follow returns and after changes of the bond or of its members, by one goroutine at a time. It is not
// called while no interface has that index.
func Follow(ifindex int, log *slog.Logger, read Reader, notify func(*State)) (*Follower, error) {
	runtime.LockOSThread() // create all sockets on this thread
	defer runtime.UnlockOSThread()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("bond: netlink socket: %w", err)
	}
	f := &Follower{ifindex: ifindex, handle: h, read: read, notify: notify}
	f.watch, err = netwatch.Follow(netwatch.Options{
		Name: "members of the bond", Groups: []int{unix.RTNLGRP_LINK}, Relist: f.concerns,
		List: f.list, Log: log,
	})
	if err != nil {
		h.Close()
		return nil, err
	}
	return f, nil
}

// Watch returns the watch of the kernel's interfaces, for health and counters.
func (f *Follower) Watch() *netwatch.Watch { return f.watch }

// Close stops following. No call of notify begins after it returns.
func (f *Follower) Close() {
	f.watch.Close()
	f.handle.Close()
}

// concerns reports whether a message concerns the bond: itself, a member, or an interface that becomes one.
func (f *Follower) concerns(kind uint16, body []byte) bool {
	if kind != unix.RTM_NEWLINK && kind != unix.RTM_DELLINK || len(body) < unix.SizeofIfInfomsg {
		return false
	}
	if f.known[int(nl.DeserializeIfInfomsg(body).Index)] {
		return true
	}
	attrs, _ := nl.ParseRouteAttr(body[unix.SizeofIfInfomsg:])
	return slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == unix.IFLA_MASTER && len(a.Value) == 4 &&
			int(binary.NativeEndian.Uint32(a.Value)) == f.ifindex
	})
}

// list reads the state and passes it on.
func (f *Follower) list() error {
	s, err := f.read(f.handle, f.ifindex)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil // package localaddr reports that the interface is gone
	}
	if err != nil {
		return err
	}
	f.known = map[int]bool{f.ifindex: true}
	for _, m := range s.Members {
		f.known[m.Ifindex] = true
	}
	f.notify(s)
	return nil
}
