package netwatch

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// host is a network namespace with one interface, and the thread that is in it.
type host struct {
	nl   *netlink.Handle
	link netlink.Link
}

// onHost runs f on a thread in its own namespace.
func onHost(t *testing.T, f func(h *host)) {
	t.Helper()
	needs.NetNS(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := newHost()
		if err != nil {
			t.Error(err)
			return
		}
		defer h.nl.Close()
		f(h)
	}()
	<-done
}

func newHost() (*host, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	a := netlink.NewLinkAttrs()
	a.Name = "v0"
	v := netlink.NewVeth(a)
	v.PeerName = "v1"
	err = nl.LinkAdd(v)
	l, e := nl.LinkByName("v0")
	return &host{nl, l}, errors.Join(err, e)
}

// neighbour sets the address of the neighbour 10.0.x.y.
func (h *host) neighbour(i int, mac byte) {
	h.nl.NeighSet(&netlink.Neigh{
		LinkIndex: h.link.Attrs().Index, IP: net.IPv4(10, 0, byte(i>>8), byte(i)),
		State:        netlink.NUD_PERMANENT,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, mac},
	})
}

// table holds the reported neighbours: the last byte of each Ethernet address.
type table struct {
	h     *host
	gate  sync.Mutex // Change waits while it is held
	mu    sync.Mutex
	mac   map[string]byte
	fails atomic.Int32 // number of the next calls of List that fail
}

func (k *table) change(kind uint16, body []byte) {
	if n, err := netlink.NeighDeserialize(body); err == nil && kind == unix.RTM_NEWNEIGH {
		k.gate.Lock()
		defer k.gate.Unlock()
		k.set(n)
	}
}

func (k *table) set(n *netlink.Neigh) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(n.HardwareAddr) == 6 {
		k.mac[n.IP.String()] = n.HardwareAddr[5]
	}
}

func (k *table) list() error {
	if k.fails.Add(-1) >= 0 {
		return errors.New("no list today")
	}
	found, err := k.h.nl.NeighList(k.h.link.Attrs().Index, unix.AF_INET)
	for i := range found {
		k.set(&found[i])
	}
	return err
}

func (k *table) has(i int, mac byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mac[net.IPv4(10, 0, byte(i>>8), byte(i)).String()] == mac
}

func follow(t *testing.T, h *host, buffer int) (*Watch, *table) {
	t.Helper()
	k := &table{h: h, mac: map[string]byte{}}
	w, err := Follow(Options{Name: "neighbours", Groups: []int{unix.RTNLGRP_NEIGH},
		Change: k.change, List: k.list, Buffer: buffer})
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return w, k
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("not so after two minutes: " + what)
			return
		}
	}
}

func TestFollows(t *testing.T) {
	onHost(t, func(h *host) {
		h.neighbour(1, 1)
		w, k := follow(t, h, 0)
		defer w.Close()
		if !k.has(1, 1) {
			t.Error("the initial state is not known when Follow returns")
		}
		h.neighbour(2, 7)
		eventually(t, "a change is seen", func() bool { return k.has(2, 7) })
		if n := w.Counters(); n.Lists != 1 || n.Changes == 0 ||
			n.Overruns+n.Failures+n.Restarts != 0 || w.Health() != nil {
			t.Errorf("%+v, %v", n, w.Health())
		}
	})
}

// TestOverrun: more changes arrive than the socket holds while the follower is busy, so that the last ones are lost.
// The first two attempts to read everything fail.
func TestOverrun(t *testing.T) {
	const neighbours = 400
	onHost(t, func(h *host) {
		w, k := follow(t, h, 16<<10)
		defer w.Close()
		k.gate.Lock()
		for mac := byte(1); mac <= 3; mac++ {
			for i := range neighbours {
				h.neighbour(i, mac)
			}
		}
		k.fails.Store(2)
		k.gate.Unlock()
		for i := range neighbours {
			if eventually(t, "the latest address of each neighbour is known", func() bool {
				return k.has(i, 3)
			}); t.Failed() {
				return
			}
		}
		eventually(t, "health", func() bool { return w.Health() == nil })
		if n := w.Counters(); n.Overruns == 0 || n.Lists < 2 || n.Failures != 2 {
			t.Errorf("%+v", n)
		}
		h.neighbour(1, 9)
		eventually(t, "changes are seen afterwards", func() bool { return k.has(1, 9) })
	})
}

// TestBrokenSocket closes the follower's socket: it must open another one in the same namespace, and read the changes
// that it missed.
func TestBrokenSocket(t *testing.T) {
	onHost(t, func(h *host) {
		w, k := follow(t, h, 0)
		defer w.Close()
		w.mu.Lock()
		w.sock.Close()
		w.mu.Unlock()
		eventually(t, "it is said", func() bool { return errors.As(w.Health(), new(*Stale)) })
		h.neighbour(1, 1)
		eventually(t, "the change is known", func() bool { return k.has(1, 1) })
		eventually(t, "health", func() bool { return w.Health() == nil })
		h.neighbour(2, 2)
		eventually(t, "changes are seen afterwards", func() bool { return k.has(2, 2) })
		if n := w.Counters(); n.Restarts != 1 || n.Failures == 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestForged: a message that another program forges and sends to the follower's socket is ignored.
func TestForged(t *testing.T) {
	onHost(t, func(h *host) {
		w, k := follow(t, h, 0)
		defer w.Close()
		raw, _ := w.sock.SyscallConn()
		var port uint32
		raw.Control(func(fd uintptr) {
			a, _ := unix.Getsockname(int(fd))
			port = a.(*unix.SockaddrNetlink).Pid
		})
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		forged := make([]byte, 16+12) // an RTM_NEWNEIGH without attributes
		forged[0], forged[4] = byte(len(forged)), unix.RTM_NEWNEIGH
		if err := unix.Sendto(fd, forged, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
			Pid: port}); err != nil {
			t.Error(err)
		}
		h.neighbour(1, 1)
		eventually(t, "a change of the kernel's is seen", func() bool { return k.has(1, 1) })
		if n := w.Counters(); n.Changes != 1 {
			t.Errorf("%d changes were accepted, one was from the kernel", n.Changes)
		}
	})
}

// TestCloseLeavesNothing: after Close, no descriptors and goroutines of a follower remain, even if its socket was
// broken.
func TestCloseLeavesNothing(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	onHost(t, func(h *host) {
		fds, routines := files(), runtime.NumGoroutine()
		for i := range 50 {
			w, _ := follow(t, h, 0)
			if i%2 == 0 {
				w.mu.Lock()
				w.sock.Close()
				w.mu.Unlock()
			}
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			w.Close()
			w.Close()
		}
		eventually(t, "nothing is left", func() bool {
			return files() <= fds && runtime.NumGoroutine() <= routines
		})
	})
}
