package tcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/engine/bytestream/stream"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// tunnel is a TUN device in a network namespace of its own: the kernel's TCP is on one side, a Conn on the other.
type tunnel struct {
	t     *testing.T
	fd    int
	rng   *rand.Rand
	loss  float64
	start time.Time
	buf   []byte
	drops int

	mark             float64
	marked, lastMark int // bytes sent to the kernel with CE: in total, and in the last such segment
}

var (
	kernel4, ours4 = [4]byte{10, 99, 0, 1}, [4]byte{10, 99, 0, 2}
	kernel6, ours6 = ip.Addr{0xfd, 0x99, 15: 1}, ip.Addr{0xfd, 0x99, 15: 2}
)

// inNamespace runs f on a thread in a new network namespace, which is removed when f returns.
func inNamespace(t *testing.T, f func()) {
	needs.NetNS(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("a network namespace: %v", err)
			return
		}
		f()
	}()
	<-done
}

func newTunnel(t *testing.T, seed uint64, loss float64, mtu int) *tunnel {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("/dev/net/tun: %v", err)
	}
	req, _ := unix.NewIfreq("xwtcp0")
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Fatalf("TUNSETIFF: %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := netlink.LinkByName("xwtcp0")
	must(err)
	must(netlink.LinkSetMTU(l, mtu))
	must(netlink.LinkSetUp(l))
	for _, a := range []string{"10.99.0.1/24", "fd99::1/64"} {
		addr, err := netlink.ParseAddr(a)
		must(err)
		addr.Flags = unix.IFA_F_NODAD
		must(netlink.AddrAdd(l, addr))
	}
	return &tunnel{t: t, fd: fd, rng: rand.New(rand.NewPCG(seed, 1)), loss: loss, start: time.Now(),
		buf: make([]byte, 1<<16)}
}

func (u *tunnel) now() tick.Time { return tick.Time(time.Since(u.start)) + 1e9 }

// read returns the next TCP segment from the kernel. It waits until deadline, but at most 20 ms, and then returns
// false.
func (u *tunnel) read(deadline tick.Time) (h ip.Header, s tcp.Segment, payload []byte, ok bool) {
	for {
		n, err := unix.Read(u.fd, u.buf)
		if err == unix.EAGAIN {
			wait := min(max(int(deadline.Sub(u.now())/tick.Millisecond), 0), 20)
			if deadline <= u.now() {
				return h, s, nil, false
			}
			if k, _ := unix.Poll([]unix.PollFd{{Fd: int32(u.fd), Events: unix.POLLIN}},
				wait); k == 0 && u.now() >= deadline {
				return h, s, nil, false
			} else if k == 0 {
				return h, s, nil, false
			}
			continue
		}
		if err != nil {
			u.t.Errorf("read: %v", err)
			return h, s, nil, false
		}
		off, err := h.Decode(u.buf[:n])
		if err != nil || h.Proto != ip.ProtoTCP {
			continue
		}
		b := u.buf[off : off+h.PayloadLen]
		if wire.Fold(wire.Sum(b, h.PseudoSum(len(b)))) != 0xffff {
			u.t.Errorf("bad checksum from the kernel")
			continue
		}
		if u.rng.Float64() < u.loss {
			u.drops++
			continue
		}
		p, err := s.Decode(b)
		if err != nil {
			u.t.Errorf("header from the kernel: %v", err)
			continue
		}
		s.Len, s.ECN = len(b)-p, tcp.ECN(h.TOS&3)
		if s.ECN == tcp.ECT0 && u.rng.Float64() < u.mark {
			s.ECN = tcp.CE
		}
		return h, s, b[p:], true
	}
}

// write sends a segment to the kernel.
func (u *tunnel) write(out *tcp.Out, v6 bool, fill func(seq.Range, []byte)) {
	if u.rng.Float64() < u.loss {
		u.drops++
		return
	}
	h := ip.Header{V6: v6, Proto: ip.ProtoTCP, TTL: 64, DF: true, TOS: uint8(out.ECN),
		Src: ip.AddrFrom4(ours4), Dst: ip.AddrFrom4(kernel4)}
	if v6 {
		h.Src, h.Dst = ours6, kernel6
	}
	n := out.Payload.Len()
	if out.ECN == tcp.ECT0 && u.rng.Float64() < u.mark {
		h.TOS = uint8(tcp.CE)
		u.marked += n
		u.lastMark = n
	}
	h.PayloadLen = out.Len() + n
	b := make([]byte, h.Len()+h.PayloadLen)
	off := h.Put(b)
	p := off + out.Put(b[off:])
	if n > 0 {
		fill(out.Payload, b[p:])
	}
	wire.PutChecksum(b[off:], wire.Finish(wire.Sum(b[off:], h.PseudoSum(h.PayloadLen))))
	if _, err := unix.Write(u.fd, b); err != nil {
		u.t.Errorf("write: %v", err)
	}
}

// TestKernel moves bytes both ways between a Conn and the kernel's TCP.
func TestKernel(t *testing.T) {
	for _, c := range []struct {
		name    string
		v6      bool
		passive bool
		loss    float64
		mtu     int
		ecn     string
		mode    tcp.ECNMode // expected result of the negotiation
		mark    float64     // share of ECT packets marked with CE, in both directions
		cfg     tcp.Config
	}{
		{name: "active", mtu: 1500},
		{name: "passive", mtu: 1500, passive: true},
		{name: "active, IPv6, jumbo", v6: true, mtu: 9000, cfg: tcp.Config{MTU: 9000}},
		{name: "passive, IPv6, jumbo", v6: true, mtu: 9000, passive: true,
			cfg: tcp.Config{MTU: 9000}},
		{name: "active, losses", mtu: 1500, loss: 0.02},
		{name: "passive, losses", mtu: 1500, loss: 0.02, passive: true},
		{name: "no options", mtu: 1500, loss: 0.01, cfg: tcp.Config{NoTimestamps: true,
			NoSACK: true, NoWScale: true}},
		{name: "ECN", mtu: 1500, ecn: "1", mode: tcp.ECNClassic, mark: 0.01,
			cfg: tcp.Config{ECN: tcp.ECNClassic}},
		{name: "ECN, passive", mtu: 1500, ecn: "1", mode: tcp.ECNClassic, mark: 0.01, passive: true,
			cfg: tcp.Config{ECN: tcp.ECNPassive}},
		{name: "AccECN", mtu: 1500, ecn: "3", mode: tcp.ECNAccurate, mark: 0.01,
			cfg: tcp.Config{ECN: tcp.ECNAccurate}},
		{name: "AccECN, passive", mtu: 1500, ecn: "3", mode: tcp.ECNAccurate, mark: 0.01,
			passive: true, cfg: tcp.Config{ECN: tcp.ECNPassive}},
		{name: "AccECN to a classic kernel", mtu: 1500, ecn: "1", mode: tcp.ECNClassic,
			cfg: tcp.Config{ECN: tcp.ECNAccurate}},
		{name: "cookies", mtu: 1500, passive: true, cfg: tcp.Config{SYNRetries: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lacks := ""
			inNamespace(t, func() {
				u := newTunnel(t, 1, c.loss, c.mtu)
				defer unix.Close(u.fd)
				if c.ecn != "" {
					err := os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte(c.ecn), 0)
					if errors.Is(err, unix.EINVAL) && c.ecn == "3" {
						lacks = "this kernel knows no accurate ECN (tcp_ecn=3)"
						return
					}
					if err != nil {
						t.Error(err)
					}
				}
				u.mark = c.mark
				cfg := c.cfg
				cfg.IPv6, cfg.TimeWait = c.v6, 50*tick.Millisecond
				cfg.RcvSpace, cfg.RcvSpaceMax = 1<<18, 1<<18
				k := &kernelPeer{t: t, u: u, v6: c.v6, cfg: cfg}
				cookies := cfg.SYNRetries < 0
				k.cfg.SYNRetries = 0
				k.run(c.passive, cookies)
				n := k.c.Counters()
				if k.info.ECN != c.mode {
					t.Errorf("ECN mode %d was negotiated, want %d", k.info.ECN, c.mode)
				}
				if c.mark > 0 && (n.CEIn == 0 || n.ECEIn+n.CEBytesOut == 0) {
					t.Errorf("marks: %d arrived, %d echoes, %d bytes reported", n.CEIn, n.ECEIn,
						n.CEBytesOut)
				}
				if c.mode == tcp.ECNAccurate && n.CEBytesOut != uint64(u.marked) &&
					n.CEBytesOut != uint64(u.marked-u.lastMark) {
					t.Errorf("%d bytes were marked on the way, the kernel reported %d", u.marked,
						n.CEBytesOut)
				}
				if c.cfg.NoSACK == k.info.SACK || c.cfg.NoTimestamps == k.info.Timestamps ||
					c.cfg.NoWScale == k.info.WindowScaling {
					t.Errorf("negotiated %+v", k.info)
				}
				l := k.info.Loss.Counters
				t.Logf("%v, %d dropped, %d sent again, %d timeouts, EMSS %d; %d bytes marked, "+
					"%d reported, %d reductions", k.took.Round(time.Millisecond),
					u.drops, l.Retransmitted, l.Timeouts, k.info.SndMSS, u.marked, n.CEBytesOut,
					l.ECNReductions)
			})
			if lacks != "" {
				t.Skip(lacks)
			}
		})
	}
}

// kernelPeer is a transfer in both directions between a Conn and the kernel.
type kernelPeer struct {
	t     *testing.T
	u     *tunnel
	v6    bool
	cfg   tcp.Config
	c     tcp.Conn
	l     *tcp.Listener
	snd   stream.Send
	rcv   stream.Recv
	ready bool
	info  tcp.Info
	took  time.Duration
}

const kernelBytes = 1_500_000

func (k *kernelPeer) run(passive, cookies bool) {
	rng := rand.New(rand.NewPCG(7, 7))
	toKernel, fromKernel := make([]byte, kernelBytes), make([]byte, kernelBytes)
	for i := range toKernel {
		toKernel[i], fromKernel[i] = byte(rng.Uint32()), byte(rng.Uint32())
	}
	network, host, mine := "tcp4", "10.99.0.1", "10.99.0.2"
	tu := tcp.Tuple{Local: ip.AddrFrom4(ours4), Remote: ip.AddrFrom4(kernel4), LocalPort: 5000}
	if k.v6 {
		network, host, mine = "tcp6", "fd99::1", "fd99::2"
		tu.Local, tu.Remote = ours6, kernel6
	}
	verdict := make(chan error, 1)
	if passive {
		k.l = new(tcp.Listener)
		lc := tcp.ListenConfig{Conn: k.cfg}
		if cookies {
			lc.Cookies = tcp.CookiesAlways
		}
		k.l.Init(&lc, k.u.now())
		fd, sa := k.kernelSocket(), k.sockaddr(mine, 5000)
		go func() {
			if err := connectBlocking(fd, sa); err != nil {
				verdict <- err
				return
			}
			verdict <- kernelSide(fd, toKernel, fromKernel)
		}()
	} else {
		l, err := net.Listen(network, net.JoinHostPort(host, "6000"))
		if err != nil {
			k.t.Error(err)
			return
		}
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				verdict <- err
				return
			}
			verdict <- kernelConn(conn.(*net.TCPConn), toKernel, fromKernel)
		}()
		tu.RemotePort = 6000
		key := [16]byte{9}
		k.cfg.TSOffset = tcp.TSOffset(&key, &tu)
		k.c.Init(&k.cfg, tu.LocalPort, tu.RemotePort, tcp.ISN(&key, &tu, k.u.now()), k.u.now())
		k.c.Connect(k.u.now())
	}
	begin := time.Now()
	k.loop(tu, toKernel, fromKernel)
	k.took = time.Since(begin)
	select {
	case err := <-verdict:
		if err != nil {
			k.t.Errorf("kernel side: %v", err)
		}
	case <-time.After(5 * time.Second):
		k.t.Errorf("the kernel side does not end; ours is %v", k.c.State())
	}
}

func (k *kernelPeer) kernelSocket() int {
	domain := unix.AF_INET
	if k.v6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err != nil {
		k.t.Errorf("socket: %v", err)
	}
	return fd
}

func (k *kernelPeer) sockaddr(host string, port int) unix.Sockaddr {
	a := net.ParseIP(host)
	if k.v6 {
		return &unix.SockaddrInet6{Port: port, Addr: [16]byte(a.To16())}
	}
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte(a.To4())}
}

func connectBlocking(fd int, sa unix.Sockaddr) error {
	if err := unix.Connect(fd, sa); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

func kernelSide(fd int, want, give []byte) error {
	f := os.NewFile(uintptr(fd), "socket")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return err
	}
	return kernelConn(conn.(*net.TCPConn), want, give)
}

// kernelConn is the kernel's side: it writes give, closes the send direction, and expects to read want and the end.
func kernelConn(conn *net.TCPConn, want, give []byte) error {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(give)
		conn.CloseWrite()
		wrote <- err
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes arrived, not the %d sent", len(got), len(want))
	}
	return <-wrote
}

func (k *kernelPeer) loop(tu tcp.Tuple, give, want []byte) {
	got := 0
	end := k.u.now().Add(20 * tick.Second)
	buf := make([]byte, 1<<16)
	var out tcp.Out
	for k.u.now() < end {
		deadline := min(k.c.Deadline(), end)
		if h, s, payload, ok := k.u.read(deadline); ok {
			k.input(&tu, &h, &s, payload)
		}
		now := k.u.now()
		if k.c.Deadline() <= now {
			k.c.Expire(now)
		}
		ev := k.c.Events()
		if k.c.State() >= tcp.Established || k.ready {
			k.setUp()
			if ev&(tcp.EMSSChanged|tcp.Connected) != 0 {
				k.snd.SetEMSS(k.c.EMSS())
			}
			k.snd.Acked(k.c.SndUna())
			k.rcv.Advance(k.c.RcvEnd())
			n := k.rcv.Read(buf)
			if !bytes.Equal(buf[:n], want[got:min(got+n, len(want))]) {
				k.t.Errorf("bytes %d..%d from the kernel are wrong", got, got+n)
				return
			}
			got += n
			k.c.SetRcvSpace(k.rcv.Space(), now)
			if give = give[k.snd.Write(give):]; len(give) == 0 {
				k.snd.Close()
				k.c.Shutdown(now)
			}
		}
		for k.c.Poll(now, &k.snd, &out) {
			k.u.write(&out, k.v6, k.snd.Fill)
		}
		if i := k.c.Info(now); i.SndMSS > 0 {
			k.info = i
		}
		if ev&tcp.Ended != 0 {
			if k.c.Cause() != tcp.CauseClosed || got != len(want) {
				k.t.Errorf("ended: %v, %d of %d bytes", k.c.Cause(), got, len(want))
			}
			return
		}
	}
	k.t.Errorf("no end: %v, %d of %d bytes, %+v", k.c.State(), got, len(want), k.c.Counters())
}

func (k *kernelPeer) setUp() {
	if k.ready {
		return
	}
	k.ready = true
	s, r := k.c.DataStart()
	k.snd.Init(s, 1<<16, 1<<19)
	k.rcv.Init(r, 1<<16, 1<<18)
}

func (k *kernelPeer) input(tu *tcp.Tuple, h *ip.Header, s *tcp.Segment, payload []byte) {
	now := k.u.now()
	if k.c.State() == tcp.Closed && k.l != nil && !k.ready {
		t := *tu
		t.RemotePort = s.SrcPort
		var out tcp.Out
		switch k.l.Input(&t, s, now, &out) {
		case tcp.Reply:
			k.u.write(&out, k.v6, nil)
			return
		case tcp.Drop:
			return
		}
		if !k.l.Accept(&t, s, &k.c, now) {
			k.t.Error("Accept refuses")
			return
		}
	}
	o := k.c.Input(s, now)
	for _, r := range o.R[:o.N] {
		k.setUp()
		at := r.Start.Diff(s.Start())
		k.c.Keep(seq.Of(r.Start, k.rcv.Put(r.Start, payload[at:at+r.Len()])))
	}
	k.c.Finish(now)
}
