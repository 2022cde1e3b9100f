package xdp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/bond"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/netspace"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/verbs"
	"xwarp/engine/wake"
	"xwarp/ring"
)

// readBond and isBond are bond.Read and bond.Is, unless a test replaces them.
var (
	readBond bond.Reader = bond.Read
	isBond               = bond.Is
)

// bondPart is the part of a trunk that serves a bond: a program and sockets on each member.
type bondPart struct {
	follower *bond.Follower
	twins    *Privileges     // has the programs: Config.Privileges, or others
	space    *netspace.Space // to open members in, which may take seconds
	changed  wake.Flag       // the state has changed: for memberLoop
	state    atomic.Pointer[bond.State]

	mu      sync.Mutex // guards what follows, and changes of the members of groups
	members []*member
	failed  map[int]memberError // by interface index: members that could not be opened
	tagged  bool                // the drivers leave VLAN tags in received frames
}

// member is a member of a bond that has the program.
type member struct {
	bond.Member
	steer  *bpf.Steering // a twin of the trunk's
	att    bpf.Attachment
	queues int // number of receive queues
}

// openBond finds the members of nic, if it is a bond that its members' sockets can serve. Otherwise it logs the reason
// and leaves t.bond nil.
func (t *trunk) openBond(nic netlink.Link) error {
	if !isBond(nic) {
		return nil
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	s, err := readBond(h, nic.Attrs().Index)
	if err != nil {
		return err
	}
	if why := bond.CheckMode(s.Mode); why != nil {
		t.log.Warn("bond cannot use the sockets of its members: slower", "because", why,
			"next", bond.ModeSteps(t.name)+"; restart")
		return nil
	}
	if len(s.Members) == 0 {
		return fmt.Errorf("%w: bond %s has no members (add one: ip link set NAME down; ip link set NAME master %s)",
			unix.ENODEV, t.name, t.name)
	}
	t.bond = &bondPart{failed: map[int]memberError{}, changed: wake.New()}
	t.bond.state.Store(s)
	if t.bond.twins = t.cfg.Privileges; t.bond.twins == nil {
		t.bond.twins = NewPrivileges(0)
	}
	t.bond.space, err = netspace.Current()
	return err
}

// attach attaches the program to the interface, or to the members of a bond, and sets t.att.
func (t *trunk) attach(nic netlink.Link) (err error) {
	if t.bond == nil {
		// A driver may create more receive queues when a program is attached: virtio_net creates one per CPU.
		t.att, err = t.steer.Attach(nic.Attrs().Index, t.cfg.attachMode(nic))
		return err
	}
	t.att = bpf.Attachment{Ifindex: nic.Attrs().Index, Interface: t.name, Mode: bpf.ModeNative}
	s := t.bond.state.Load()
	for _, info := range s.Members {
		m, err := t.attachMember(info)
		if err != nil {
			return fmt.Errorf("member %s of bond %s: %w", info.Name, t.name, err)
		}
		t.bond.members = append(t.bond.members, m)
		if m.att.Mode == bpf.ModeGeneric {
			t.att.Mode = bpf.ModeGeneric
		}
		if t.att.NativeErr == nil {
			t.att.NativeErr = m.att.NativeErr
		}
		t.warnOfMTU(&info, s)
	}
	return t.steer.HoldResets(t.att.Ifindex)
}

// attachError is an error of attaching the program, such as that another process has attached one.
type attachError struct{ error }

func (e attachError) Unwrap() error { return e.error }

func (t *trunk) attachMember(info bond.Member) (*member, error) {
	nic, err := netlink.LinkByIndex(info.Ifindex)
	if err != nil {
		return nil, err
	}
	steer, err := t.bond.twins.takeTwin(t.steer)
	if err != nil {
		return nil, err
	}
	m := &member{Member: info, steer: steer}
	if m.att, err = steer.Attach(info.Ifindex, t.cfg.attachMode(nic)); err != nil {
		return nil, errors.Join(attachError{attachBusy(err)}, t.bond.twins.returnTwin(steer))
	}
	m.queues = ethtool.ReceiveQueues(info.Ifindex, info.Name, bpf.DefaultMaxQueues)
	return m, nil
}

// warnOfMTU warns of a member whose MTU is below that of the bond.
func (t *trunk) warnOfMTU(m *bond.Member, s *bond.State) {
	if m.MTU < s.MTU {
		t.log.Warn("member of the bond has a smaller MTU: longer frames on it are lost",
			"member", m.Name, "mtu", m.MTU, "bond_mtu", s.MTU,
			"next", fmt.Sprintf("ip link set %s mtu %d", m.Name, s.MTU))
	}
}

// openGroupThread opens the sockets of a queue on all members that have it, and makes their thread.
func (t *trunk) openGroupThread(queue int, wait time.Duration) error {
	g := ring.NewGroup()
	for _, m := range t.bond.members {
		if queue >= m.queues {
			continue
		}
		sock, err := t.openMemberSocket(m, queue, wait)
		if err == nil {
			t.pollQueue(sock)
			if err = g.Add(sock); err != nil {
				sock.Close()
			}
		}
		if err != nil {
			return errors.Join(err, g.Close())
		}
	}
	s := t.bond.state.Load()
	g.Use(s.Policy, s.Senders())
	if g.Info().TxSlots == 0 {
		return fmt.Errorf("%w: no member of bond %s has it", verbs.ErrInvalid, t.name)
	}
	port, err := t.transmitPort(g, t.att.Ifindex)
	if err != nil {
		return errors.Join(err, g.Close())
	}
	th, err := newThread(queue, port)
	if err != nil {
		return errors.Join(err, port.Close())
	}
	th.group = g
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.threads) == 0 {
		t.socket = g.Info()
	}
	t.threads = append(t.threads, th)
	return nil
}

func (t *trunk) openMemberSocket(m *member, queue int, wait time.Duration) (*ring.Socket, error) {
	sock, err := t.openSocket(m.Ifindex, queue, wait)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", m.Name, queueBusy(err, m.Ifindex, queue))
	}
	if err := m.steer.SetSocket(queue, sock.Fd()); err != nil {
		sock.Close()
		return nil, err
	}
	return sock, nil
}

// followBond starts to follow the members, whose changes the threads apply.
func (t *trunk) followBond() (w *netwatch.Watch, err error) {
	b := t.bond
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.follower != nil { // another device of the trunk did it
		return b.follower.Watch(), nil
	}
	if b.follower, err = bond.Follow(t.att.Ifindex, t.log, readBond, t.onBond); err != nil {
		return nil, err
	}
	t.watching.Go(t.memberLoop)
	return b.follower.Watch(), nil
}

// onBond makes the threads send on the members of a changed bond, and lets memberLoop do what takes longer.
func (t *trunk) onBond(s *bond.State) {
	b := t.bond
	was := b.state.Swap(s)
	t.useSenders()
	if err := bond.CheckMode(s.Mode); err != nil && s.Mode != was.Mode {
		t.log.Error("mode of the bond changed: sending on its active members", "because", err,
			"next", "restart, or set the mode back")
	}
	for i := range s.Members {
		m := &s.Members[i]
		same := func(v bond.Member) bool { return v.Ifindex == m.Ifindex && v.MTU == m.MTU }
		if !slices.ContainsFunc(was.Members, same) || was.MTU != s.MTU {
			t.warnOfMTU(m, s)
		}
	}
	b.changed.Set()
}

// memberRetry and memberRetryMax are the first and the longest time between two tries to attach the program to a member
// that has the program of another process.
const (
	memberRetry    = 5 * time.Second
	memberRetryMax = 5 * time.Minute
)

// memberLoop opens and closes members until the trunk is closed.
func (t *trunk) memberLoop() {
	var retry <-chan time.Time
	for wait := memberRetry; ; {
		again, waiting := false, false
		select {
		case <-t.ended:
			return
		case <-t.bond.changed:
		case <-retry:
			again = true
		}
		t.bond.space.Do(func() error { waiting = t.changeMembers(again); return nil })
		switch {
		case !waiting:
			retry, wait = nil, memberRetry
		case again || retry == nil:
			retry, wait = time.After(wait), min(2*wait, memberRetryMax)
		}
	}
}

// changeMembers serves the members of the bond, and no others. It tries to open a member only once; with again, it also
// tries those that wait for another try, and it reports whether any do. It runs in the namespace of the bond.
func (t *trunk) changeMembers(again bool) (waiting bool) {
	b := t.bond
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	var gone []*member
	b.members = slices.DeleteFunc(b.members, func(m *member) bool {
		left := !isMember(s, m.Ifindex)
		if left {
			gone = append(gone, m)
		}
		return left
	})
	for _, m := range gone {
		log := t.log.With("member", m.Name, "members", len(b.members))
		if err := t.closeMember(m); err != nil {
			log = log.With("error", err)
		}
		log.Warn("member left the bond: connections use the others")
	}
	for ifindex := range b.failed {
		if !isMember(s, ifindex) {
			delete(b.failed, ifindex)
		}
	}
	for _, info := range s.Members {
		same := func(m *member) bool { return m.Ifindex == info.Ifindex }
		failed, tried := b.failed[info.Ifindex]
		if slices.ContainsFunc(b.members, same) || tried && !(again && failed.waits) {
			waiting = waiting || failed.waits
			continue
		}
		if err := t.addMember(info); err != nil {
			waiting = t.reportFailed(info, err) || waiting
			continue
		}
		delete(b.failed, info.Ifindex)
		t.useSenders()
		t.log.Info("member joined the bond", "member", info.Name, "members", len(b.members))
	}
	return waiting
}

// memberError is an error of opening a member.
type memberError struct {
	text  string
	waits bool // the program could not be attached: this is tried again, and takes no spare sockets
}

// reportFailed logs an error of opening a member, unless the last one had the same text. It reports whether opening is
// tried again.
func (t *trunk) reportFailed(m bond.Member, err error) (waits bool) {
	_, waits = errors.AsType[attachError](err)
	was, now := t.bond.failed[m.Ifindex], memberError{verbs.ErrorText(err), waits}
	t.bond.failed[m.Ifindex] = now
	next := "ip link set " + m.Name + " nomaster"
	if waits {
		next = "remove what the error names: xwarp tries again; or: " + next
	}
	if now != was {
		t.log.Error("cannot serve a member of the bond: connections whose frames arrive there break",
			"member", m.Name, "error", err, "next", next)
	}
	return waits
}

func isMember(s *bond.State, ifindex int) bool {
	return slices.ContainsFunc(s.Members, func(m bond.Member) bool { return m.Ifindex == ifindex })
}

// memberNames returns the names of a bond's members, and of those on which it sends.
func (t *trunk) memberNames() (members, senders []string) {
	if t.bond == nil {
		return nil, nil
	}
	for _, m := range t.bond.state.Load().Members {
		members = append(members, m.Name)
		if m.Sends {
			senders = append(senders, m.Name)
		}
	}
	return members, senders
}

// useSenders tells all threads on which members to send.
func (t *trunk) useSenders() {
	for _, th := range t.allThreads() {
		th.do(func() {
			s := t.bond.state.Load() // the latest, whoever calls
			th.group.Use(s.Policy, s.Senders())
		})
	}
}

func (t *trunk) allThreads() []*thread {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.threads)
}

// addMember serves an interface that has become a member. The program comes first: without it the kernel would reset
// connections whose frames arrive there.
func (t *trunk) addMember(info bond.Member) error {
	m, err := t.attachMember(info)
	if err != nil {
		return err
	}
	if t.bond.tagged {
		err = t.keepTagsOn(m.Ifindex, m.Name)
	}
	for _, th := range t.allThreads() {
		if err != nil || th.queue >= m.queues {
			continue
		}
		var sock *ring.Socket
		if sock, err = t.openMemberSocket(m, th.queue, bindMember); err != nil {
			continue
		}
		if t.cfg.PollNIC {
			_ = t.startPolling(sock) // interrupts do it otherwise
		}
		th.do(func() { err = th.group.Add(sock) })
		if err != nil {
			sock.Close()
		}
	}
	if err != nil {
		return errors.Join(err, t.closeMember(m))
	}
	t.bond.members = append(t.bond.members, m)
	return nil
}

// bindMember is how long a queue of a new member may be busy, such as that of one that has just left.
const bindMember = time.Second

// closeMember undoes addMember.
func (t *trunk) closeMember(m *member) error {
	var errs []error
	for _, th := range t.allThreads() {
		var sock *ring.Socket
		th.do(func() { sock = th.group.Remove(m.Ifindex) })
		if sock != nil {
			errs = append(errs, sock.Close())
		}
	}
	return errors.Join(append(errs, t.bond.twins.returnTwin(m.steer))...)
}

// detach detaches the program from the interface or from all members.
func (t *trunk) detach() error {
	if t.bond == nil {
		return t.steer.Detach()
	}
	t.bond.mu.Lock()
	defer t.bond.mu.Unlock()
	errs := []error{t.steer.Detach()}
	for _, m := range t.bond.members {
		errs = append(errs, m.steer.Detach())
	}
	return errors.Join(errs...)
}

// closeFollower ends changes of the members. memberLoop has ended.
func (t *trunk) closeFollower() {
	if t.bond == nil {
		return
	}
	if t.bond.follower != nil {
		t.bond.follower.Close()
	}
	if t.bond.space != nil {
		t.bond.space.Close()
	}
}

// returnTwins returns the programs of all members, whose sockets are closed.
func (t *trunk) returnTwins() error {
	if t.bond == nil {
		return nil
	}
	var errs []error
	for _, m := range t.bond.members {
		errs = append(errs, t.bond.twins.returnTwin(m.steer))
	}
	t.bond.members = nil
	if t.cfg.Privileges == nil {
		errs = append(errs, t.bond.twins.Close())
	}
	return errors.Join(errs...)
}
