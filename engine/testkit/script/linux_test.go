package script

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/tcp/tick"
)

// Kernel is a network namespace with a TUN device, through which scripts exchange packets with kernel TCP. Its methods
// must be called on the goroutine that created it, which is locked to its thread.
type Kernel struct {
	tun  int
	link netlink.Link
	buf  [1 << 16]byte
}

const tunName = "script0"

// OpenKernel creates a namespace for the calling goroutine's thread. The thread stays in it, so the goroutine must end
// without unlocking it.
func OpenKernel() (*Kernel, error) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("making a network namespace: %w (run as root)", err)
	}
	k := &Kernel{tun: -1}
	if err := k.openTUN(); err != nil {
		k.Close()
		return nil, fmt.Errorf("TUN device: %w", err)
	}
	return k, nil
}

func (k *Kernel) openTUN() (err error) {
	if k.tun, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0); err != nil {
		return err
	}
	req, err := unix.NewIfreq(tunName)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(k.tun, unix.TUNSETIFF, req); err != nil {
		return err
	}
	sysctl("ipv6/conf/all/accept_dad", "0")
	sysctl("ipv6/conf/default/accept_dad", "0")
	sysctl("ipv6/conf/"+tunName+"/accept_ra", "0")
	sysctl("ipv6/conf/"+tunName+"/router_solicitations", "0")
	if k.link, err = netlink.LinkByName(tunName); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(k.link); err != nil {
		return err
	}
	for _, a := range []string{"10.1.0.1/8", "fd00::1/64"} {
		ad, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		ad.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(k.link, ad); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return nil
}

// Close removes the device. The namespace ends with its thread.
func (k *Kernel) Close() error {
	if k.tun < 0 {
		return nil
	}
	err := unix.Close(k.tun)
	k.tun = -1
	return err
}

// errNoAccECN means that this kernel has no support for RFC 9768.
var errNoAccECN = errors.New("this kernel has no accurate ECN")

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// prepare applies the settings of a script to the namespace.
func (k *Kernel) prepare(set *settings) error {
	on := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	num := func(v, d int) string {
		if v == 0 {
			v = d
		}
		return strconv.Itoa(v)
	}
	pick := func(b bool, yes, no string) string {
		if b {
			return yes
		}
		return no
	}
	ecn := map[string]string{"": "2", "off": "0", "passive": "2", "classic": "1",
		"accurate": "3"}[set.ECN]
	cookies := pick(set.Cookies, "2", pick(set.NoCookies, "0", "1"))
	for name, v := range map[string]string{
		"tcp_no_metrics_save": "1", "tcp_autocorking": "0", "tcp_invalid_ratelimit": "500",
		"tcp_syncookies": cookies,
		"tcp_timestamps": on(!set.NoTS), "tcp_sack": on(!set.NoSACK),
		"tcp_window_scaling": on(!set.NoWScale),
		"tcp_early_retrans":  pick(set.NoTLP, "0", "3"), "tcp_recovery": on(!set.NoRACK),
		"tcp_frto":  pick(set.NoFRTO, "0", "2"),
		"tcp_dsack": on(!set.NoDSACK), "tcp_rfc1337": on(set.RFC1337),
		"tcp_mtu_probing": on(set.ProbeMTU), "tcp_ecn": ecn,
		"tcp_syn_retries": num(set.SYNRetries, 6), "tcp_synack_retries": num(set.SYNRetries, 5),
		"tcp_syn_linear_timeouts": "0",
	} {
		err := sysctl("ipv4/"+name, v)
		if name == "tcp_ecn" && v == "3" && errors.Is(err, unix.EINVAL) {
			return errNoAccECN
		} else if err != nil {
			return err
		}
	}
	mtu := 1500
	if set.MTU > 0 {
		mtu = set.MTU
	}
	return netlink.LinkSetMTU(k.link, mtu)
}

// Run runs s against the kernel. n selects its peer's address, and must differ between the scripts of one Kernel.
func (k *Kernel) Run(s *Script, n int) error {
	err := k.prepare(&s.settings)
	if errors.Is(err, errNoAccECN) {
		return &Failure{s, s.Line, "use ecn=accurate", err}
	} else if err != nil {
		return err
	}
	for { // leftovers of the last script's sockets
		if _, err := unix.Read(k.tun, k.buf[:]); err != nil {
			break
		}
	}
	h := &linux{k: k, opt: s.settings, e: addresses(s.settings.IPv6, n), began: time.Now(),
		fds: map[int]*socket{}, listener: -1}
	defer h.close()
	if f := play(s, h, h.e); f != nil {
		return f
	}
	return nil
}

// linux is one run on a Kernel.
type linux struct {
	k        *Kernel
	opt      settings
	e        ends
	began    time.Time
	out      []sent
	fds      map[int]*socket
	listener int
}

func (h *linux) now() tick.Time { return tick.Time(time.Since(h.began)) }

// slack allows for a timer resolution of 4 ms and for a busy machine.
func (h *linux) slack(d tick.Duration) (early, late tick.Duration) {
	return 15*tick.Millisecond + d/20, 40*tick.Millisecond + d/4
}

func (h *linux) send(packet []byte) error {
	_, err := unix.Write(h.k.tun, packet)
	h.collect()
	// The kernel refuses packets that are not IP packets at all, which counts as a drop.
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// collect reads the packets that the kernel sent.
func (h *linux) collect() {
	for {
		n, err := unix.Read(h.k.tun, h.k.buf[:])
		if err != nil || n <= 0 {
			return
		}
		h.out = append(h.out, sent{append([]byte(nil), h.k.buf[:n]...), h.now()})
	}
}

// waitFor collects packets until a time. With some it returns as soon as there is a packet.
func (h *linux) waitFor(until tick.Time, some bool) {
	for h.collect(); !some || len(h.out) == 0; h.collect() {
		left := until.Sub(h.now())
		if left <= 0 {
			return
		}
		fds := []unix.PollFd{{Fd: int32(h.k.tun), Events: unix.POLLIN}}
		ts := unix.NsecToTimespec(int64(left))
		unix.Ppoll(fds, &ts, nil)
	}
}

func (h *linux) recv(until tick.Time) ([]byte, tick.Time, bool) {
	h.waitFor(until, true)
	if len(h.out) == 0 || h.out[0].at > until {
		return nil, 0, false
	}
	s := h.out[0]
	h.out = h.out[1:]
	return s.b, s.at, true
}

func (h *linux) sleep(until tick.Time) { h.waitFor(until, false) }

// shrinks: Linux announces a zero window when a socket's memory is used up, regardless of earlier announcements.
func (h *linux) shrinks() bool { return true }

// close resets open connections, so that the kernel forgets them at once.
func (h *linux) close() {
	for n := range h.fds {
		h.closeSocket(n, true)
	}
	if h.listener >= 0 {
		unix.Close(h.listener)
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
