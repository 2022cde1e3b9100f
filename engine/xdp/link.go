package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"xwarp/engine/host/localaddr"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
)

// ErrGone is wrapped by the error of a device whose network interface was removed, or moved to another network
// namespace.
var ErrGone = errors.New("gone")

// Link is the network interface of a device.
type Link struct {
	localaddr.Link
	Gone    bool
	Since   time.Time    // time of the last change of Up, Carrier or Gone; zero: none yet
	Missing []netip.Addr // addresses in use by connections and listeners that the host no longer has, at most 64
	LinkCounters
}

// LinkCounters count the changes of an interface.
type LinkCounters struct {
	Downs     uint64 // times that the link went down or lost its carrier
	MTUs      uint64 // changes of the MTU
	Addresses uint64 // changes of the MAC address, plus losses of IP addresses in use
	Queues    uint64 // changes of the number of receive queues
}

// linkState is the state of a driver's interface.
type linkState struct {
	mu    sync.Mutex
	known bool
	now   Link
	mac   [6]byte
	addrs []netip.Prefix
	mtu   int // MTU of the stacks
	room  int // maximum packet length that frames can hold
	asked int // Config.MTU; 0: that of the interface
}

// Link returns the state of the interface as the kernel reports it.
func (d *Device) Link() Link {
	x := d.x
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	l := x.link.now
	l.Missing = slices.Clone(l.Missing)
	return l
}

// onInterfaceGone fails the device after its interface has disappeared: the interface was removed, its driver unbound,
// or its card pulled.
func (x *driver) onInterfaceGone(err error) {
	k := &x.link
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Gone, k.now.Since, k.now.Up, k.now.Carrier = true, time.Now(), false, false
	err = fmt.Errorf("interface %s is %w: %w", x.cfg.Interface, ErrGone, err)
	for _, w := range x.stacks() {
		w.Post(func() { w.lostErr, w.CheckTables = err, true })
	}
}

// onLocalChange applies a change of the interface or of the host's addresses to the stacks and to the steering program.
func (x *driver) onLocalChange(s *localaddr.State) error {
	k := &x.link
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known { // no log lines for the normal state
		k.now.Link = localaddr.Link{Name: s.Link.Name, MTU: s.Link.MTU, Up: true, Carrier: true}
		k.mac = s.MAC
	}
	x.logLinkChange(&k.now, s)
	k.now.Link = s.Link
	x.setMTU(s.Link.MTU)
	left := x.removedAddrs(s)
	x.neigh.ForgetRoutes()
	k.known, k.mac, k.addrs = true, s.MAC, s.Addrs
	local := stackLocal(s)
	for _, w := range x.stacks() {
		w.Post(func() {
			w.stk.SetMAC(s.MAC)
			w.stk.SetLocal(local)
			x.noteMissing(w, left)
		})
	}
	return errors.Join(x.claims.SetMAC(s.MAC), x.claims.SetLocal(s.Addrs))
}

// logLinkChange counts and logs the differences between was and s.
func (x *driver) logLinkChange(was *Link, s *localaddr.State) {
	log := x.base.Log().With("interface", x.cfg.Interface)
	up, wasUp := s.Link.Up && s.Link.Carrier, was.Up && was.Carrier
	if s.Link.Up != was.Up || s.Link.Carrier != was.Carrier {
		was.Since = time.Now()
	}
	switch {
	case up && !wasUp:
		log.Info("link is up")
	case !up && wasUp:
		was.Downs++
		why, next := "no carrier", "check the cable and the other end"
		if !s.Link.Up {
			why, next = "it was set down", "ip link set "+s.Link.Name+" up"
		}
		log.Warn("link is down: connections wait until they time out", "because", why,
			"next", next)
	}
	switch s.Link.Name {
	case was.Name:
	case x.cfg.Interface:
		log.Info("interface has its configured name again")
	default:
		log.Warn("interface was renamed", "now", s.Link.Name, "next",
			"put the new name into the configuration: the next start looks for it")
	}
	if s.MAC != x.link.mac {
		was.Addresses++
		log.Info("MAC address changed: sending from the new one",
			"was", fmt.Sprintf("% x", x.link.mac), "now", fmt.Sprintf("% x", s.MAC))
	}
}

// setMTU sets the MTU of the stacks to link, the MTU of the interface, limited by Config.MTU and the frame size.
func (x *driver) setMTU(link int) {
	k := &x.link
	log := x.base.Log().With("interface", x.cfg.Interface, "interface_mtu", link)
	want := link
	if k.asked > 0 {
		want = min(want, k.asked)
	}
	mtu := min(want, k.room)
	if k.known && link != k.now.Link.MTU || mtu != k.mtu {
		k.now.MTUs++
	}
	switch {
	case mtu == k.mtu && want <= k.room:
		return
	case mtu < stack.MinMTU:
		log.Warn("interface MTU is below xwarp's minimum: packets above the interface MTU are lost", "least", stack.MinMTU,
			"mtu", k.mtu)
		return
	case want > k.room:
		log.Warn("MTU exceeds the frame size of this device: packets stay smaller", "mtu", mtu,
			"next", "restart at a convenient time")
	default:
		log.Info("MTU changed: connections adapt", "mtu", mtu)
	}
	k.mtu = mtu
	for _, w := range x.stacks() {
		w.Post(func() { w.stk.SetMTU(mtu, core.Now()) })
	}
}

// mtuRoom returns the maximum length of an IP packet that frames can hold in both directions, but at least Config.MTU.
func (x *driver) mtuRoom() int {
	room := x.socket.TxRoom - ethernet
	if x.socket.Segments == 1 {
		room = min(room, x.socket.RxRoom-ethernet)
	}
	return max(room, x.cfg.MTU)
}

// ifname returns the current name of the interface, which may have been renamed.
func (x *driver) ifname() string {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	return cmp.Or(x.link.now.Name, x.cfg.Interface)
}

// packetMTU returns the maximum length of an IP packet to send.
func (x *driver) packetMTU() int {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	return x.link.mtu
}

// removedAddrs returns the addresses that the host had before s and no longer has. It removes addresses that are in s
// from Missing.
func (x *driver) removedAddrs(s *localaddr.State) (list []netip.Addr) {
	k := &x.link
	for _, p := range k.addrs {
		if p.IsSingleIP() && !slices.Contains(s.Addrs, p) {
			list = append(list, p.Addr())
		}
	}
	k.now.Missing = slices.DeleteFunc(k.now.Missing, func(a netip.Addr) bool {
		back := slices.ContainsFunc(s.Addrs, func(p netip.Prefix) bool { return p.Contains(a) })
		if back {
			x.base.Log().Info("address is back: its connections and listeners continue",
				"interface", x.cfg.Interface, "address", a)
		}
		return back
	})
	return list
}

// noteMissing records the removed addresses that connections or listeners of a worker use.
func (x *driver) noteMissing(w *worker, left []netip.Addr) {
	for _, a := range left {
		n := w.stk.Using(core.FromNetip(a))
		if n == 0 {
			continue
		}
		x.link.mu.Lock()
		first := !slices.Contains(x.link.now.Missing, a)
		if first && len(x.link.now.Missing) < maxMissing {
			x.link.now.Missing = append(x.link.now.Missing, a)
			x.link.now.Addresses++
		}
		x.link.mu.Unlock()
		if first {
			x.base.Log().Warn(
				"address removed: its connections and listeners wait until it returns",
				"interface", x.cfg.Interface, "address", a, "queue", w.Queue, "users", n,
				"next", "ip addr add; new connections from it are refused")
		}
	}
}

// maxMissing is the maximum number of addresses in Link.Missing.
const maxMissing = 64
