package xfrm

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/engine/esp"
	"xwarp/engine/host/netwatch"
)

const (
	testIfID = 0x7877
	us, peer = "10.99.0.1", "10.99.0.2"
)

// namespace moves the test to its own network namespace, with an address and a route to the peer.
func namespace(t *testing.T) {
	t.Helper()
	needs.NetNS(t)
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ip(t, "link set lo up")
	ip(t, "link add v0 type veth peer name v1")
	ip(t, "link set v0 up")
	ip(t, "link set v1 up")
	ip(t, "addr add "+us+"/24 dev v0")
	ip(t, "neigh add "+peer+" lladdr 02:00:00:00:00:02 dev v0")
}

// ip runs the program ip, which configures XFRM with its own code.
func ip(t *testing.T, args string) string {
	t.Helper()
	out, err := exec.Command("ip", fields(args)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// fields splits arguments at blanks, except within quotation marks.
func fields(s string) (list []string) {
	for i, part := range strings.Split(s, "'") {
		if i%2 != 0 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// addPolicies installs the two policies of a pair, for TCP to port 4791. TCP is protocol 6: the test VM has no
// /etc/protocols with its name.
func addPolicies(t *testing.T, more string) {
	t.Helper()
	for _, s := range []string{
		"src %[1]s dst %[2]s proto 6 dport 4791 dir out %[3]s tmpl src %[1]s dst %[2]s",
		"src %[2]s dst %[1]s proto 6 sport 4791 dir in %[3]s tmpl src %[2]s dst %[1]s"} {
		ip(t, "xfrm policy add "+fmt.Sprintf(s, us, peer, more)+
			" proto esp reqid 9 mode transport")
	}
}

// states collects the reports of a Follower.
type states struct {
	mu   sync.Mutex
	list []*Snapshot
}

func (s *states) add(x *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
}

func (s *states) last() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[len(s.list)-1]
}

// wait waits until the last state satisfies a condition, and returns that state.
func (s *states) wait(t *testing.T, what string, is func(x *Snapshot) bool) *Snapshot {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		x := s.last()
		if is(x) {
			return x
		}
		if time.Now().After(end) {
			t.Fatalf("no %s: %d policies, outbound %v, inbound %v", what, len(x.Policies),
				x.Outbound, x.Inbound)
		}
	}
}

func follow(t *testing.T) (*Follower, *states) {
	t.Helper()
	s := &states{}
	f, err := Follow(Options{IfID: testIfID, Notify: s.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, s
}

func TestFollowReportsPolicies(t *testing.T) {
	namespace(t)
	addPolicies(t, "if_id 0x7877")
	_, s := follow(t)
	x := s.last()
	if len(x.Policies) != 2 {
		t.Fatalf("%d policies", len(x.Policies))
	}
	at := netip.MustParseAddrPort
	for _, p := range x.Policies {
		if p.Mode != esp.Transport || p.ReqID != 9 || p.IfID != testIfID ||
			p.Local.String() != us+"/32" || p.Remote.String() != peer+"/32" {
			t.Errorf("%+v", p)
		}
		for remote, want := range map[string]bool{peer + ":4791": true, peer + ":4792": false,
			"10.99.0.3:4791": false, "[::ffff:10.99.0.2]:4791": true} {
			if p.Matches(at(us+":40000"), at(remote)) != want {
				t.Errorf("%v: a connection to %s matches: %v", p, remote, !want)
			}
		}
	}
	ip(t, "xfrm policy add src fd99::/64 dst fd98::/48 dir out if_id 0x7877 priority 7 tmpl "+
		"src fd99::1 dst fd98::1 proto esp reqid 10 mode tunnel")
	x = s.wait(t, "third policy", func(x *Snapshot) bool { return len(x.Policies) == 3 })
	if p := x.Policies[2]; p.Mode != esp.Tunnel || !p.Out || p.Dst.String() != "fd98::1" ||
		!p.Matches(at("[fd99::5]:1"), at("[fd98::7]:2")) ||
		p.Matches(at("[fd97::5]:1"), at("[fd98::7]:2")) || p.Matches(at(us+":1"), at(peer+":2")) {
		t.Errorf("%+v", p)
	}
	// The host's own policies and a block policy are ignored.
	addPolicies(t, "")
	ip(t, "xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir out if_id 0x7877 action block")
	ip(t, "xfrm policy delete src fd99::/64 dst fd98::/48 dir out if_id 0x7877")
	s.wait(t, "policy less", func(x *Snapshot) bool { return len(x.Policies) == 2 })
	ip(t, "xfrm policy flush")
	s.wait(t, "end of all policies", func(x *Snapshot) bool { return len(x.Policies) == 0 })
}

// TestDeletionsNameTheMark deletes one of two SAs that share their address and SPI, and the other one must stay. The
// kernel has only the deleted one, as a reserved SPI, which needs no algorithm.
func TestDeletionsNameTheMark(t *testing.T) {
	namespace(t)
	left := make(chan []saKey, 10)
	f := &Follower{}
	f.opt.Notify = func(*Snapshot) {
		var keys []saKey
		for _, e := range f.entries {
			keys = append(keys, e.sa.id())
		}
		left <- keys
	}
	const spi = 0x1001
	ip(t, fmt.Sprintf("xfrm state allocspi src %s dst %s proto esp mode transport mark 7 min %d max %d",
		peer, us, spi, spi))
	for _, mark := range []uint32{7, 8} {
		sa := &SA{SA: esp.SA{SPI: spi}, Dst: netip.MustParseAddr(us), Mark: mark}
		f.entries = append(f.entries, &entry{sa: sa, status: inbound})
	}
	w, err := netwatch.Follow(netwatch.Options{Name: "deletions", Protocol: unix.NETLINK_XFRM,
		Groups: []int{nl.XFRMNLGRP_SA}, List: func() error { return nil }, Change: f.change})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ip(t, fmt.Sprintf("xfrm state delete src %s dst %s proto esp spi %d mark 7", peer, us, spi))
	if keys := <-left; len(keys) != 1 || keys[0].mark != 8 {
		t.Errorf("after the deletion of the SA with mark 7: %+v", keys)
	}
}

// daemon receives the messages that the kernel sends to IKE daemons.
type daemon struct{ acquired, expired chan string }

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{make(chan string, 100), make(chan string, 100)}
	w, err := netwatch.Follow(netwatch.Options{Name: "daemon", Protocol: unix.NETLINK_XFRM,
		Groups: []int{nl.XFRMNLGRP_ACQUIRE, nl.XFRMNLGRP_EXPIRE},
		List:   func() error { return nil },
		Change: func(kind uint16, b []byte) {
			switch kind {
			case nl.XFRM_MSG_ACQUIRE: // struct xfrm_user_acquire: id, saddr, sel, policy
				sel := nl.DeserializeXfrmSelector(b[40:])
				d.acquired <- fmt.Sprint(address(sel.Saddr, sel.Family), ">",
					address(sel.Daddr, sel.Family), ":", nl.Swap16(sel.Dport))
			case nl.XFRM_MSG_EXPIRE:
				m := nl.DeserializeXfrmUserExpire(b)
				d.expired <- fmt.Sprintf("%#x hard %d", nl.Swap32(m.XfrmUsersaInfo.Id.Spi), m.Hard)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return d
}

func hears(t *testing.T, from chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Fatalf("the daemon received %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the daemon received nothing, want %q", want)
	}
}

//req:rfc5040-8.2.2-3 rfc5041-8.4.2-3
func TestAcquireReachesTheDaemon(t *testing.T) {
	namespace(t)
	addPolicies(t, "if_id 0x7877")
	f, s := follow(t)
	out := s.last().Policies[0]
	if !out.Out {
		out = s.last().Policies[1]
	}
	if err := f.Acquire(out); !errors.Is(err, errNoDaemon) {
		t.Errorf("without a daemon: %v", err)
	}
	d := newDaemon(t)
	if err := f.Acquire(out); err != nil {
		t.Fatal(err)
	}
	hears(t, d.acquired, us+">"+peer+":4791")
}

func TestFollowExcludesAnotherProcess(t *testing.T) {
	namespace(t)
	f, _ := follow(t)
	o := Options{IfID: testIfID, Notify: func(*Snapshot) {}}
	if _, err := Follow(o); !errors.Is(err, unix.EADDRINUSE) ||
		!strings.Contains(err.Error(), "if_id 0x7877") {
		t.Errorf("a second one: %v", err)
	}
	f.Close()
	again, err := Follow(o)
	if err != nil {
		t.Fatalf("after the first is closed: %v", err)
	}
	again.Close()
	if _, err := Follow(Options{Notify: o.Notify}); err == nil {
		t.Error("if_id 0 was accepted")
	}
}

// TestFollowExcludesAtOneTime: of many concurrent callers of Follow at most one succeeds.
func TestFollowExcludesAtOneTime(t *testing.T) {
	namespace(t)
	netns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Close()
	for range 20 {
		begin, won := make(chan struct{}), make(chan *Follower, 8)
		for range cap(won) {
			go func() {
				runtime.LockOSThread() // the thread ends with the goroutine
				err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET)
				<-begin
				f, err2 := Follow(Options{IfID: testIfID, Notify: func(*Snapshot) {}})
				if err != nil || err2 != nil && !errors.Is(err2, unix.EADDRINUSE) {
					t.Error(err, err2)
				}
				won <- f
			}()
		}
		close(begin)
		n := 0
		for range cap(won) {
			if f := <-won; f != nil {
				n++
				defer f.Close()
			}
		}
		if n > 1 {
			t.Fatalf("%d follow", n)
		}
		if n == 1 {
			return
		}
	}
}

// TestUsersCannotHoldTheLock: a process without CAP_NET_ADMIN cannot lock xwarpd out of its SAs.
func TestUsersCannotHoldTheLock(t *testing.T) {
	namespace(t)
	unprivileged := make(chan error)
	netns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Close()
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET)
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err = errors.Join(err, unix.Capset(&h, &none[0]))
		fd := -1
		if err == nil {
			fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM)
		}
		if err == nil {
			defer unix.Close(fd)
			err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
				Groups: lockGroups(testIfID)})
		}
		unprivileged <- err
	}()
	if err := <-unprivileged; !errors.Is(err, unix.EPERM) {
		t.Errorf("a user took the lock: %v", err)
	}
	follow(t)
}

// TestOverrun: the kernel drops announcements of policies while they are not read. All policies must then be read
// again.
func TestOverrun(t *testing.T) {
	namespace(t)
	var s states
	var gate sync.Mutex
	f, err := Follow(Options{IfID: testIfID, buffer: 16 << 10, Notify: func(x *Snapshot) {
		gate.Lock()
		defer gate.Unlock()
		s.add(x)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n = 1000
	var batch strings.Builder
	for i := range n {
		fmt.Fprintf(&batch, "xfrm policy add src %s dst 10.98.%d.%d dir out if_id %#x tmpl src %s "+
			"dst 10.98.%[2]d.%[3]d proto esp mode transport\n", us, i>>8, i&255, testIfID, us)
	}
	gate.Lock()
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(batch.String())
	out, err := c.CombinedOutput()
	gate.Unlock()
	if err != nil {
		t.Fatal(err, string(out))
	}
	s.wait(t, "policies", func(x *Snapshot) bool { return len(x.Policies) == n })
	if f.Watch().Counters().Overruns == 0 {
		t.Error("nothing was dropped: this test shows nothing")
	}
}
