package bpf

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// The veth pair of a lab, and the addresses on it (RFC 5737).
const (
	hostName, peerName = "xwb-host", "xwb-peer"
	hostAddr, peerAddr = "192.0.2.1", "192.0.2.2"
)

// lab is two network namespaces with a veth pair between them. The test's thread is in the host's namespace and belongs
// to the test. When the test ends, so do the thread, the namespaces and everything in them.
type lab struct {
	t              *testing.T
	hostNS, peerNS int
	host, peer     netlink.Link
}

// newLab creates a lab. A test with a lab has no subtests: they would run on other threads, in other namespaces.
func newLab(t *testing.T, edit ...func(*netlink.Veth)) *lab {
	t.Helper()
	needs.XDP(t)
	needs.NetNS(t)
	runtime.LockOSThread()
	l := &lab{t: t}
	l.peerNS = l.namespace()
	l.hostNS = l.namespace()

	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: peerName,
		PeerNamespace: netlink.NsFd(l.peerNS)}
	veth.Name = hostName
	for _, e := range edit {
		e(veth)
	}
	l.must(netlink.LinkAdd(veth))
	l.host = l.up(hostName, hostAddr)
	l.inPeer(func() { l.peer = l.up(peerName, peerAddr) })
	return l
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// namespace moves the thread to a new network namespace and returns a descriptor of it.
func (l *lab) namespace() int {
	l.t.Helper()
	l.must(unix.Unshare(unix.CLONE_NEWNET))
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	l.must(err)
	l.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (l *lab) up(name, addr string) netlink.Link {
	l.t.Helper()
	nic, err := netlink.LinkByName(name)
	l.must(err)
	a, err := netlink.ParseAddr(addr + "/24")
	l.must(err)
	l.must(netlink.AddrAdd(nic, a))
	l.must(netlink.LinkSetUp(nic))
	return nic
}

// inPeer runs f in the peer's namespace. Sockets that f creates stay in it.
func (l *lab) inPeer(f func()) {
	l.t.Helper()
	l.must(unix.Setns(l.peerNS, unix.CLONE_NEWNET))
	defer func() { l.must(unix.Setns(l.hostNS, unix.CLONE_NEWNET)) }()
	f()
}

func (l *lab) ifindex() int { return l.host.Attrs().Index }

// attached returns the ID that netlink reports of the program on the host's interface, or 0 if there is none.
func (l *lab) attached() uint32 {
	l.t.Helper()
	nic, err := netlink.LinkByIndex(l.ifindex())
	l.must(err)
	if xdp := nic.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp.ProgId
	}
	return 0
}

// sender returns a function that sends raw frames from the peer's interface.
func (l *lab) sender() func(frame []byte) {
	l.t.Helper()
	var fd int
	l.inPeer(func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		l.must(err)
	})
	l.t.Cleanup(func() { unix.Close(fd) })
	to := &unix.SockaddrLinklayer{Ifindex: l.peer.Attrs().Index, Halen: 6}
	return func(frame []byte) {
		l.t.Helper()
		l.must(unix.Sendto(fd, frame, 0, to))
	}
}

// ping exchanges an ICMP echo between the peer's kernel and the host's.
func (l *lab) ping() error {
	var fd int
	var err error
	l.inPeer(func() {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0),
		Id: 0x7777, Seq: 1}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, echo,
		payload); err != nil {
		return err
	}
	if err := unix.Sendto(fd, buf.Bytes(), 0, &unix.SockaddrInet4{Addr: local4.As4()}); err != nil {
		return err
	}
	for b := make([]byte, 2048); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return fmt.Errorf("no echo reply: %w", err)
		}
		reply, ok := gopacket.NewPacket(b[:n], layers.LayerTypeIPv4, gopacket.Default).Layer(
			layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if ok && reply.TypeCode.Type() == layers.ICMPv4TypeEchoReply && reply.Id == echo.Id {
			return nil
		}
	}
}
