package xdp_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// macvlanOnA gives host A a macvlan on its veth.
func macvlanOnA(t *testing.T, n *topo.Net) {
	useLink(t, n.A, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PRIVATE,
		LinkAttrs: netlink.LinkAttrs{Name: "macvlan0", ParentIndex: n.A.Link.Index}})
}

// bridgeOnA gives host A a bridge, with its veth as a port.
func bridgeOnA(t *testing.T, n *topo.Net) {
	nl := n.A.Netlink()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	port, err := nl.LinkByName(n.A.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	useLink(t, n.A, bridge)
	if err := nl.LinkSetMaster(port, bridge); err != nil {
		t.Fatal(err)
	}
}

// useLink adds a link to a host, unless it exists already, and moves the host's IPv4 address to it.
func useLink(t *testing.T, h *topo.Host, link netlink.Link) {
	t.Helper()
	nl := h.Netlink()
	old, err := nl.LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	address := func() *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: h.Addr4.Addr().AsSlice(),
			Mask: net.CIDRMask(h.Addr4.Bits(), 32)}}
	}
	if link.Attrs().Index == 0 {
		err = nl.LinkAdd(link)
	}
	if err := errors.Join(err, nl.AddrDel(old, address()), nl.AddrAdd(link, address()),
		nl.LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	h.Addr6 = netip.Prefix{}
	h.Link.Name, h.Link.Index = link.Attrs().Name, link.Attrs().Index
}

// taps gives both hosts a tap. What one sends, the user of both writes to the other one as it is, as a hypervisor does
// whose guests take large segments and partial checksums.
func taps(t *testing.T, n *topo.Net) {
	a, b := openTap(t, n.A), openTap(t, n.B)
	for _, p := range [][2]*os.File{{a, b}, {b, a}} {
		go func() {
			frame := make([]byte, 1<<17)
			for {
				k, err := p[0].Read(frame)
				if err != nil {
					return // closed
				}
				p[1].Write(frame[:k]) // fails at the end of the test
			}
		}()
	}
}

func openTap(t *testing.T, h *topo.Host) *os.File {
	t.Helper()
	var fd int
	if err := h.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC,
			0); err != nil {
			return err
		}
		req, err := unix.NewIfreq("tap0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return errors.Join(unix.IoctlIfreq(fd, unix.TUNSETIFF, req), unix.IoctlSetInt(fd,
			unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6))
	}); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "tap0")
	t.Cleanup(func() { f.Close() })
	tap, err := h.Netlink().LinkByName("tap0")
	if err != nil {
		t.Fatal(err)
	}
	useLink(t, h, tap)
	return f
}
