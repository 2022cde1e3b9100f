package ring

import (
	"errors"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group is a Port over the sockets of a bond's members, each with its own UMEM. It receives on all members, and sends
// each frame on the member that the bond's policy chooses. Frames are lost while no member may send, as on the bond.
// It is not safe for concurrent use.
type Group struct {
	members []*Socket // by position, which is part of a slot number; nil: free position
	retired []bool    // by position: removed, but the reader or the writer still has chunks
	senders []int     // positions of the members that may send
	policy  Policy
	last    int // position in members of the one that sent last: the next frame probably uses it
	turn    int // position at which Recv starts
	fds     []unix.PollFd
	scratch []byte // memory of the TxBuf that AllocTx returns while no member may send
	info    Info
	stats   Stats // of removed sockets, and of frames that the Group dropped
}

var _ Port = (*Group)(nil)

// slotBits is the number of low bits of a Group's slot number that hold the slot number of the member. The bits above
// hold the position of the member.
const slotBits = 20

// nowhere is the position in the slot number of a TxBuf that no member has: AllocTx returns it while no member may
// send.
const nowhere = 1<<(32-slotBits) - 1

// MaxMembers is the maximum number of members of a Group.
const MaxMembers = 64

// NewGroup returns a Group without members.
func NewGroup() *Group { return &Group{} }

// Add adds the socket of a member, which g owns from now on. The member receives. It sends only after a call of Use.
// Add fails if g has MaxMembers members.
func (g *Group) Add(s *Socket) error {
	at := slices.Index(g.members, nil)
	if at < 0 {
		if at = len(g.members); at == MaxMembers {
			return errors.New("ring: a bond of more than 64 members")
		}
		g.members, g.retired = append(g.members, nil), append(g.retired, false)
	}
	g.members[at], g.retired[at] = s, false
	g.mergeInfo()
	return nil
}

// Remove removes the member with an interface index. It returns the socket, which the caller must close. It returns nil
// if there is no such member, or if chunks of the socket are still in use: then g closes the socket later.
func (g *Group) Remove(ifindex int) *Socket {
	at := g.position(ifindex)
	if at < 0 {
		return nil
	}
	g.retired[at] = true
	g.setSenders(slices.DeleteFunc(slices.Clone(g.senders), func(i int) bool { return i == at }))
	s := g.takeBack(at)
	g.mergeInfo()
	return s
}

// Use sets the policy and the members that may send. senders holds their interface indices in the order of the bond:
// the policy's hash modulo their number chooses one. Indices without a member are ignored.
func (g *Group) Use(p Policy, senders []int) {
	g.policy = p
	var list []int
	for _, ifindex := range senders {
		if at := g.position(ifindex); at >= 0 {
			list = append(list, at)
		}
	}
	g.setSenders(list)
}

func (g *Group) setSenders(list []int) {
	g.senders = list
	if len(list) > 0 && !slices.Contains(list, g.last) {
		g.last = list[0]
	}
}

// position returns the position of a member that was not removed, or -1.
func (g *Group) position(ifindex int) int {
	for at, s := range g.members {
		if s != nil && !g.retired[at] && s.info.Ifindex == ifindex {
			return at
		}
	}
	return -1
}

// takeBack frees the position of a removed member and returns its socket. It returns nil if the reader or the writer
// still has chunks of the socket.
func (g *Group) takeBack(at int) *Socket {
	s := g.members[at]
	queued := (s.qtail - s.qhead) * s.cfg.TxSlot
	if c := &s.frames.count; c[OwnerRx] != s.chain.n || c[OwnerTx] != queued {
		return nil
	}
	st := s.Stats()
	st.RxOffered = 0
	g.stats.add(&st)
	g.members[at], g.retired[at] = nil, false
	return s
}

// closeRetired closes the sockets of the removed members whose chunks are no longer in use.
func (g *Group) closeRetired() {
	for at, gone := range g.retired {
		if gone {
			if s := g.takeBack(at); s != nil {
				s.Close()
			}
		}
	}
}

// mergeInfo sets g.info to properties that hold for every member, with the sums of RxFrames and TxSlots, and Ifindex
// and Queue of the first member. Without members g.info does not change.
func (g *Group) mergeInfo() {
	first := true
	for at, s := range g.members {
		if s == nil || g.retired[at] {
			continue
		}
		i := s.info
		if first {
			g.info, first = i, false
			continue
		}
		o := &g.info
		o.ZeroCopy, o.HugePages = o.ZeroCopy && i.ZeroCopy, o.HugePages && i.HugePages
		if o.NoZeroCopy == nil {
			o.NoZeroCopy = i.NoZeroCopy
		}
		if o.Fault == nil {
			o.Fault = i.Fault
		}
		o.Segments, o.KickBudget = min(o.Segments, i.Segments), min(o.KickBudget, i.KickBudget)
		o.TxRoom, o.RxRoom = min(o.TxRoom, i.TxRoom), min(o.RxRoom, i.RxRoom)
		o.RxFrames, o.TxSlots = o.RxFrames+i.RxFrames, o.TxSlots+i.TxSlots
	}
}

// Recv implements Port.
func (g *Group) Recv(batch []Packet) (got int) {
	n := len(g.members)
	for k := range n {
		at := (g.turn + k) % n
		if s := g.members[at]; s != nil && !g.retired[at] {
			if got += s.Recv(batch[got:]); got == len(batch) {
				break
			}
		}
	}
	g.turn++
	return got
}

// Release implements Port.
func (g *Group) Release(p *Packet) {
	for _, s := range g.members {
		if s != nil && unsafe.SliceData(s.umem) == unsafe.SliceData(p.mem) {
			s.Release(p)
			return
		}
	}
	p.n, p.size = 0, 0
}

// Refill implements Port.
func (g *Group) Refill() (n int) {
	for at, s := range g.members {
		if s != nil && !g.retired[at] {
			n += s.Refill()
		}
	}
	g.closeRetired()
	return n
}

// AllocTx implements Port. The slot belongs to the member that sent last, or to another one if that has none free.
// While no member may send, AllocTx returns memory that Send drops.
func (g *Group) AllocTx() (TxBuf, bool) {
	if len(g.senders) == 0 {
		if len(g.scratch) < g.info.TxRoom {
			g.scratch = make([]byte, g.info.TxRoom)
		}
		return TxBuf{Data: g.scratch, slot: nowhere << slotBits}, true
	}
	if b, ok := g.allocOn(g.last); ok {
		return b, true
	}
	for _, at := range g.senders {
		if b, ok := g.allocOn(at); ok {
			return b, true
		}
	}
	return TxBuf{}, false
}

func (g *Group) allocOn(at int) (TxBuf, bool) {
	b, ok := g.members[at].AllocTx()
	b.slot |= uint32(at) << slotBits
	return b, ok
}

// owner returns the member whose slot b is, or nil, and the member's position. It replaces the slot number of the Group
// in b by that of the member.
func (g *Group) owner(b *TxBuf) (s *Socket, at int) {
	at = int(b.slot >> slotBits)
	b.slot &= 1<<slotBits - 1
	if at < len(g.members) {
		s = g.members[at]
	}
	return s, at
}

// Send implements Port. It copies the frame if the policy chooses another member than AllocTx did. If the chosen member
// has no free slot, the frame is sent on the member of AllocTx, or dropped if that may not send.
func (g *Group) Send(b TxBuf, n int) {
	s, at := g.owner(&b)
	if s == nil || len(g.senders) == 0 {
		g.lose(s, b)
		return
	}
	to := g.senders[0]
	if len(g.senders) > 1 && n >= ethHeader && n <= len(b.Data) {
		to = g.senders[g.policy.hash(b.Data[:n])%uint32(len(g.senders))]
	}
	if to == at {
		g.last = at
		s.Send(b, n)
		return
	}
	c, ok := g.members[to].AllocTx()
	switch {
	case ok && n <= len(c.Data) && n <= len(b.Data):
		copy(c.Data, b.Data[:n])
		g.last = to
		g.members[to].Send(c, n)
		s.CancelTx(b)
		return
	case ok:
		g.members[to].CancelTx(c)
	}
	if slices.Contains(g.senders, at) {
		s.Send(b, n)
	} else {
		g.lose(s, b)
	}
}

// lose drops a frame that cannot be sent, and counts it as invalid. s is the member whose slot b is, or nil.
func (g *Group) lose(s *Socket, b TxBuf) {
	g.stats.TxInvalid++
	if s != nil {
		s.CancelTx(b)
	}
}

// CancelTx implements Port.
func (g *Group) CancelTx(b TxBuf) {
	if s, _ := g.owner(&b); s != nil {
		s.CancelTx(b)
	}
}

// Block returns nil: sockets accept frames only.
func (g *Group) Block() []byte { return nil }

// SendBlock does nothing: Block returns no memory.
func (g *Group) SendBlock([]byte, Shape) {}

// Flush implements Port, for the members that may send. Frames queued on other members wait until these may send again.
func (g *Group) Flush() State {
	st := StateOK
	for _, at := range g.senders {
		if r := g.members[at].Flush(); st == StateOK {
			st = r
		}
	}
	return st
}

// Reap implements Port.
func (g *Group) Reap() (n int) {
	for _, s := range g.members {
		if s != nil {
			n += s.Reap()
		}
	}
	return n
}

// Wait implements Port.
func (g *Group) Wait(timeout time.Duration, extraFD int) Ready {
	if g.hasPackets() {
		return ReadyRx
	}
	g.fds = append(g.fds[:0], unix.PollFd{Fd: int32(extraFD), Events: unix.POLLIN})
	idle := true
	for at, s := range g.members {
		if s == nil || g.retired[at] {
			continue
		}
		s.k.enableInterrupt()
		s.countWait()
		idle = idle && s.offer.isIdle()
		g.fds = append(g.fds, unix.PollFd{Fd: int32(s.k.descriptor()), Events: unix.POLLIN})
		if s.info.Fake { // ppoll cannot wait for a fake, which has no descriptor
			timeout = min(max(timeout, 0), time.Millisecond)
		}
	}
	if g.hasPackets() {
		return ReadyRx
	}
	if !idle && (timeout < 0 || timeout > offerSettle) {
		if r := g.poll(offerSettle); r != 0 {
			return r
		}
		for at, s := range g.members {
			if s != nil && !g.retired[at] {
				s.settleOffer()
			}
		}
		timeout = max(timeout-offerSettle, -1)
	}
	return g.poll(timeout)
}

func (g *Group) poll(timeout time.Duration) (r Ready) {
	if pollUntil(g.fds, timeout) > 0 {
		for i := range g.fds {
			switch e := g.fds[i].Revents; {
			case e&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
				r |= ReadyError
			case e&unix.POLLIN != 0 && i == 0:
				r |= ReadyExtra
			case e&unix.POLLIN != 0:
				r |= ReadyRx
			}
		}
	}
	if g.hasPackets() {
		r |= ReadyRx
	}
	return r
}

func (g *Group) hasPackets() bool {
	for at, s := range g.members {
		if s != nil && !g.retired[at] && s.rx.avail(1) > 0 {
			return true
		}
	}
	return false
}

// Stats returns the sums of all members, including removed ones.
func (g *Group) Stats() Stats {
	sum := g.stats
	for _, s := range g.members {
		if s != nil {
			st := s.Stats()
			sum.add(&st)
		}
	}
	return sum
}

// add adds the counters of o.
func (s *Stats) add(o *Stats) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() + from.Field(i).Uint())
		}
	}
	if o.LastErrno != 0 {
		s.LastErrno = o.LastErrno
	}
}

// Info implements Port: the properties that hold for every member, and the sums of RxFrames and TxSlots.
func (g *Group) Info() Info { return g.info }

// Audit implements Port.
func (g *Group) Audit() error {
	for _, s := range g.members {
		if s != nil {
			if err := s.Audit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the sockets of all members.
func (g *Group) Close() error {
	var errs []error
	for _, s := range g.members {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	g.members, g.retired, g.senders = nil, nil, nil
	return errors.Join(errs...)
}
