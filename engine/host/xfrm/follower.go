package xfrm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netwatch"
)

// Options say which SAs and policies to use.
type Options struct {
	// IfID is the if_id of the policies and SAs, not 0. There must be no XFRM interface with it: then no packet of the
	// kernel matches them.
	IfID uint32
	// Mark is the mark that inbound SAs must require of packets. Zero means IfID. Received packets do not have it, so
	// the kernel does not process them with these SAs, even while the engine is not running.
	Mark uint32
	// Notify is called with each new Snapshot, by one goroutine at a time, first before Follow returns.
	Notify func(*Snapshot)
	// Refused, if set, is called with the reason why an SA is unusable. It may call methods of the Follower, except
	// Close.
	Refused func(error)
	Log     *slog.Logger // nil: no log

	buffer int // as in netwatch.Options
}

// Snapshot has the policies and SAs of an if_id at one moment. It is immutable; an SA keeps its pointer all its life.
type Snapshot struct {
	Policies []*Policy // in order of priority, the smallest number first
	Outbound []*SA     // the kernel can no longer send with them; newest last
	Inbound  []*SA
}

// Counters are the counters of a Follower.
type Counters struct {
	Taken   uint64 // outbound SAs that the engine took over
	Refused uint64 // unusable SAs, or SAs whose sequence numbers may have been used elsewhere
}

// Follower follows the SAs and policies of the kernel until it is closed. Its methods may be called from any goroutine.
type Follower struct {
	opt    Options
	client *client
	lock   int // see exclude; -1: none
	watch  *netwatch.Watch

	// owned by the goroutine of watch
	entries  []*entry // in order of discovery
	policies []*Policy
	taken    [][sha256.Size]byte // see wasTaken; newest last

	mu               sync.Mutex
	n                Counters
	refused          error // why the latest SA was refused
	closed           bool
	nextReplacePause time.Duration // before requesting a replacement for the next refused SA
	timers           map[*time.Timer]bool
}

// entry is an SA with the if_id.
type entry struct {
	sa     *SA
	status status
}

type status uint8

const (
	unassigned status = iota // no policy requires it yet
	inbound
	outbound
	refused
)

// Follow starts to follow, in the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func Follow(o Options) (*Follower, error) {
	if o.IfID == 0 {
		return nil, errors.New("IPsec: if_id is 0, which the host's own VPNs use: " +
			"choose another and set it as if_id_in and if_id_out in the IKE daemon")
	}
	if o.Mark == 0 {
		o.Mark = o.IfID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	runtime.LockOSThread() // create all sockets on this thread
	defer runtime.UnlockOSThread()
	f := &Follower{opt: o, lock: -1, timers: map[*time.Timer]bool{}}
	var err error
	if f.client, err = newClient(); err == nil {
		f.lock, err = f.client.exclude(o.IfID)
	}
	if err == nil {
		f.watch, err = netwatch.Follow(netwatch.Options{
			Name: "IPsec SAs and policies", Protocol: unix.NETLINK_XFRM,
			Groups: []int{nl.XFRMNLGRP_SA, nl.XFRMNLGRP_POLICY, nl.XFRMNLGRP_EXPIRE},
			Change: f.change, List: f.list, Log: o.Log, Buffer: o.buffer,
		})
	}
	if err != nil {
		f.release()
		return nil, fmt.Errorf("IPsec: %w", explained(err))
	}
	return f, nil
}

// exclude takes the lock of an if_id, which only one process per network namespace can hold. Without it, two processes
// that change the send counter of the same SA at the same time could both take the SA (see take). The lock is a netlink
// socket that is subscribed to a set of multicast groups without messages. The kernel lists the sockets of a network
// namespace, closes those of exited processes, and requires CAP_NET_ADMIN to subscribe, as it does for changes of SAs.
// Two processes that start at the same time may find each other; then neither gets the lock.
func (c *client) exclude(ifID uint32) (socket int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	groups := lockGroups(ifID)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	var own unix.Sockaddr
	if err == nil {
		own, err = unix.Getsockname(fd)
	}
	if err == nil {
		err = c.eachSocket(func(port, has uint32) error {
			if has != groups || port == own.(*unix.SockaddrNetlink).Pid {
				return nil
			}
			return fmt.Errorf("another process uses the SAs with if_id %#x (find its xfrm socket with "+
				"ss -f netlink): stop it or choose another if_id: %w", ifID, unix.EADDRINUSE)
		})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// lockGroups returns the multicast groups that represent an if_id. XFRM uses the first 8 of 32 groups. Several values
// of if_id may share the same groups and then exclude each other needlessly.
func lockGroups(ifID uint32) uint32 { return (ifID*0x9e3779b1)>>8<<8 | 1<<31 }

// Close stops following. SAs in use stay in the kernel, unusable, until their IKE daemon deletes them; no other process
// can use them.
func (f *Follower) Close() {
	f.mu.Lock()
	f.closed = true
	for t := range f.timers {
		t.Stop()
	}
	f.mu.Unlock()
	f.watch.Close()
	f.release()
}

func (f *Follower) release() {
	if f.client != nil {
		f.client.close()
	}
	if f.lock >= 0 {
		unix.Close(f.lock)
	}
}

// Watch returns the watch of the kernel, for health and counters.
func (f *Follower) Watch() *netwatch.Watch { return f.watch }

// Counters returns the counters, and why the last SA was refused.
func (f *Follower) Counters() (n Counters, refused error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.refused
}

// Acquire requests SAs for an outgoing policy from the IKE daemon. Notify reports them if the daemon installs them.
func (f *Follower) Acquire(p *Policy) error {
	return requestError("asking for an SA for", p, f.client.acquire(p))
}

func requestError(what string, about any, err error) error {
	if err != nil {
		err = fmt.Errorf("IPsec: %s %v: %w", what, about, err)
	}
	return err
}

// Expire tells the IKE daemon that sa reached a limit. After a soft limit the daemon installs a successor. After a hard
// limit the kernel also deletes the SA.
func (f *Follower) Expire(sa *SA, hard bool) error {
	return requestError("expiry of", sa, f.client.expire(sa, hard))
}

// Account sets the packets and bytes that the kernel reports for sa, by which IKE daemons detect idle SAs.
func (f *Follower) Account(sa *SA, packets, bytes uint64) error {
	return requestError("counters of", sa, f.client.account(sa, packets, bytes))
}

// list rereads everything. An SA that is known already, with the same key, keeps its entry.
func (f *Follower) list() error {
	sas, err := f.client.sas()
	if err != nil {
		return err
	}
	policies, err := f.client.policies()
	if err != nil {
		return err
	}
	f.setPolicies(policies)
	oldestFirst(sas)
	known := f.entries
	f.entries = nil
	for _, e := range known {
		if slices.ContainsFunc(sas, e.sa.same) {
			f.entries = append(f.entries, e)
		}
	}
	for _, sa := range sas {
		f.add(sa)
	}
	f.assign()
	f.notify()
	return nil
}

// oldestFirst sorts a dump of the kernel, which lists the newest SAs first, by time of creation, which has a resolution
// of one second.
func oldestFirst(sas []*SA) {
	slices.Reverse(sas)
	slices.SortStableFunc(sas, func(a, b *SA) int {
		return cmp.Compare(a.info.Curlft.AddTime, b.info.Curlft.AddTime)
	})
}

func (f *Follower) setPolicies(all []*Policy) {
	f.policies = slices.DeleteFunc(all, func(p *Policy) bool { return p.IfID != f.opt.IfID })
	slices.SortStableFunc(f.policies, func(a, b *Policy) int {
		return int(a.Priority) - int(b.Priority)
	})
}

// same reports whether two descriptions are of the same SA. A newly installed key means another SA.
func (sa *SA) same(o *SA) bool {
	return sa.id() == o.id() && bytes.Equal(sa.Keymat, o.Keymat)
}

// add records an SA that has the if_id and is not known yet. It replaces an SA with the same saKey and other key
// material.
func (f *Follower) add(sa *SA) {
	if sa.IfID != f.opt.IfID {
		return
	}
	if slices.ContainsFunc(f.entries, func(e *entry) bool { return e.sa.same(sa) }) {
		return
	}
	f.remove(sa.id())
	f.entries = append(f.entries, &entry{sa: sa})
}

func (f *Follower) remove(id saKey) {
	f.entries = slices.DeleteFunc(f.entries, func(e *entry) bool { return e.sa.id() == id })
}

// end removes the SA that a message reports as deleted or expired.
func (f *Follower) end(proto uint8, dst nl.XfrmAddress, family uint16, spi uint32,
	attrs []byte) error {
	if proto != unix.IPPROTO_ESP {
		return nil
	}
	list, err := parseAttrs(attrs)
	if err == nil {
		f.remove(saKey{address(dst, family), nl.Swap32(spi), requiredMark(list[nl.XFRMA_MARK])})
	}
	return err
}

// change processes a message of the kernel.
func (f *Follower) change(kind uint16, body []byte) {
	var err error
	switch kind {
	case nl.XFRM_MSG_NEWSA, nl.XFRM_MSG_UPDSA:
		var sa *SA
		sa, err = parseSA(body)
		clear(body) // it has the key
		if err == nil && sa != nil {
			f.add(sa)
		}
	case nl.XFRM_MSG_DELSA:
		if len(body) >= nl.SizeofXfrmUsersaId {
			id := nl.DeserializeXfrmUsersaId(body)
			err = f.end(id.Proto, id.Daddr, id.Family, id.Spi, body[nl.SizeofXfrmUsersaId:])
		}
		clear(body) // it has the key
	case nl.XFRM_MSG_EXPIRE:
		if len(body) >= nl.SizeofXfrmUserExpire && body[nl.SizeofXfrmUsersaInfo] != 0 {
			i := nl.DeserializeXfrmUsersaInfo(body)
			err = f.end(i.Id.Proto, i.Id.Daddr, i.Family, i.Id.Spi, body[nl.SizeofXfrmUserExpire:])
		}
	case nl.XFRM_MSG_FLUSHSA:
		f.entries = nil
	case nl.XFRM_MSG_NEWPOLICY, nl.XFRM_MSG_UPDPOLICY, nl.XFRM_MSG_DELPOLICY,
		nl.XFRM_MSG_FLUSHPOLICY:
		var all []*Policy
		if all, err = f.client.policies(); err == nil {
			f.setPolicies(all)
		}
	default:
		return
	}
	if err != nil {
		f.opt.Log.Warn("IPsec: cannot read an SA or policy: connections that need it wait",
			"error", err)
		return
	}
	f.assign()
	f.notify()
}

// assign sets the status of each SA that a policy requires and that has none yet. Daemons install SAs before or after
// their policies.
func (f *Follower) assign() {
	for _, e := range f.entries {
		if e.status != unassigned {
			continue
		}
		i := slices.IndexFunc(f.policies, func(p *Policy) bool { return p.Uses(e.sa) })
		if i < 0 {
			continue
		}
		var err error
		if f.policies[i].Out {
			e.status, err = outbound, f.take(e.sa)
		} else if e.status, err = inbound, e.sa.Receivable(f.opt.Mark); err == nil {
			err = f.take(e.sa) // else packets that another process received may be replayed (RFC 4303, 3.4.3)
		}
		switch {
		case errors.Is(err, unix.ESRCH): // it is being deleted
			e.status = refused
		case err != nil:
			e.status = refused
			f.refuse(e.sa, err)
		case e.status == outbound:
			f.count(func() { f.n.Taken++; f.nextReplacePause = 0 })
		}
	}
}

// take makes sure that only this process uses an SA. It sets the kernel's send counter to its maximum: from then on the
// kernel refuses to send, and other processes see that the SA was taken. So no sequence number of the SA was used
// before, and none is used again after this process ends. Inbound SAs also have a send counter, which shows other
// processes the same.
func (f *Follower) take(sa *SA) error {
	if sa.unusable != nil {
		return sa.unusable
	}
	if f.wasTaken(sa) {
		return fmt.Errorf("%w: it was reinstalled; set mobike = no in the IKE daemon", errUsed)
	}
	now, err := f.client.reread(sa)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if err := now.unused(); err != nil {
		return err
	}
	if err := f.client.newAE(now, now.poison()); err != nil {
		return fmt.Errorf("setting its send counter: %w", err)
	}
	if now, err = f.client.reread(sa); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	switch {
	case now.Sent != now.maxSent():
		return fmt.Errorf("the kernel did not keep its send counter: %#x", now.Sent)
	case now.Packets != 0:
		return errSentMeanwhile(now.Packets)
	case !now.same(sa):
		return errors.New("its key changed in the meantime")
	}
	return nil
}

// maxTaken is the number of SAs that wasTaken remembers.
const maxTaken = 4096

// wasTaken records sa, and reports whether an SA with its SPI and key was taken before. When an address changes, an IKE
// daemon deletes an SA and reinstalls its key; sequence numbers and the anti-replay window would restart.
func (f *Follower) wasTaken(sa *SA) bool {
	h := sha256.New()
	h.Write(sa.Keymat)
	h.Write(native.AppendUint32(nil, sa.SPI))
	sum := [sha256.Size]byte(h.Sum(nil))
	if slices.Contains(f.taken, sum) {
		return true
	}
	f.taken = append(f.taken, sum)
	f.taken = f.taken[max(0, len(f.taken)-maxTaken):]
	return false
}

// errUsed says that an SA is valid but cannot be taken. Its successor can.
var errUsed = errors.New("its sequence numbers may have been used")

// unused returns an error if sequence numbers of sa may have been used.
func (sa *SA) unused() error {
	switch {
	case sa.Sent == sa.maxSent():
		return fmt.Errorf("%w: another process took it", errUsed)
	case sa.Packets != 0 || sa.Sent != 0:
		return errSentMeanwhile(max(sa.Packets, sa.Sent))
	}
	return nil
}

func errSentMeanwhile(packets uint64) error {
	return fmt.Errorf("%w: the kernel sent packets (%d); remove the XFRM interface with this if_id, or "+
		"configure another if_id", errUsed, packets)
}

// refuse records that an inbound or outbound SA is unusable. If a successor may be usable, it requests one from the
// daemon.
func (f *Follower) refuse(sa *SA, why error) {
	f.opt.Log.Error("IPsec: rejected an SA: connections that need it wait", "sa", sa.String(),
		"error", why)
	refused := fmt.Errorf("%v: %w", sa, why)
	if f.opt.Refused != nil {
		f.opt.Refused(refused)
	}
	f.count(func() {
		f.n.Refused++
		f.refused = refused
		if f.closed || !errors.Is(why, errUsed) { // its successor would not be better
			return
		}
		pause := f.nextReplacePause
		f.nextReplacePause = min(max(2*f.nextReplacePause, replacePause), maxReplacePause)
		var t *time.Timer
		t = time.AfterFunc(pause, func() {
			f.mu.Lock()
			closed := f.closed
			delete(f.timers, t)
			f.mu.Unlock()
			if closed {
				return
			}
			if err := f.Expire(sa, false); err != nil && !errors.Is(err, unix.ESRCH) {
				f.opt.Log.Warn("IPsec: cannot ask the IKE daemon to replace an SA", "error", err)
			}
		})
		f.timers[t] = true
	})
}

// replacePause and maxReplacePause are the first and the longest delay of further requests to replace unusable SAs, so
// that a daemon whose SAs are all used by the kernel is not kept busy. The first request is not delayed.
const (
	replacePause    = time.Second
	maxReplacePause = time.Minute
)

func (f *Follower) count(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// notify passes on the current state.
func (f *Follower) notify() {
	s := &Snapshot{Policies: slices.Clone(f.policies)}
	for _, e := range f.entries {
		switch e.status {
		case inbound:
			s.Inbound = append(s.Inbound, e.sa)
		case outbound:
			s.Outbound = append(s.Outbound, e.sa)
		}
	}
	f.opt.Notify(s)
}

// Source provides SAs. A Follower implements it.
type Source interface {
	// Acquire requests SAs for an outgoing policy. Options.Notify reports them if they are installed.
	Acquire(p *Policy) error
	// Expire reports that sa reached a limit.
	Expire(sa *SA, hard bool) error
	// Account sets the packets and bytes that sa has carried.
	Account(sa *SA, packets, bytes uint64) error
	// Counters returns the counters, and why the last SA was refused.
	Counters() (n Counters, refused error)
	Close()
}

// Static returns a function like Follow with a constant Snapshot, for tests and demonstrations. Reusing its keys in
// another process repeats sequence numbers, which breaks the encryption.
func Static(s *Snapshot) func(Options) (Source, error) {
	return func(o Options) (Source, error) {
		o.Notify(s)
		return static{Counters{Taken: uint64(len(s.Outbound))}}, nil
	}
}

type static struct{ n Counters }

func (static) Acquire(*Policy) error             { return unix.ENOTCONN }
func (static) Expire(*SA, bool) error            { return unix.ENOTCONN }
func (static) Account(*SA, uint64, uint64) error { return nil }
func (s static) Counters() (Counters, error)     { return s.n, nil }
func (static) Close()                            {}
