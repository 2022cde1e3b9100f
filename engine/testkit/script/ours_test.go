package script

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"xwarp/engine/bytestream"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/ip"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// ours is the engine's stack on a fake kernel, in virtual time.
type ours struct {
	opt   settings
	e     ends
	clock tick.Time
	start tick.Time
	k     *ring.FakeKernel
	stk   *stack.Stack
	cfg   tcp.Config
	out   []sent
	wait  []*end // accepted by the stack, but not yet by the script
	socks map[int]*end
	limit int
}

type sent struct {
	b  []byte
	at tick.Time
}

// end is one socket.
type end struct {
	*bytestream.Stream
	e     *stack.Endpoint
	tuple tcp.Tuple
	shown bool // the end's error was already returned
}

const etherLen = 14

var (
	hostMAC = [6]byte{2, 0, 0, 0, 0, 1}
	peerMAC = [6]byte{2, 0, 0, 0, 0, 2}
)

// RunOurs runs s against the engine's stack.
func RunOurs(s *Script) error {
	e := addresses(s.settings.IPv6, 1)
	h, err := newOurs(s.settings, e)
	if err != nil {
		return err
	}
	defer h.close()
	if f := play(s, h, e); f != nil {
		return f
	}
	return h.stk.Audit()
}

func newOurs(set settings, e ends) (*ours, error) {
	h := &ours{opt: set, e: e, start: tick.Time(tick.Minute), clock: tick.Time(tick.Minute),
		socks: map[int]*end{}}
	h.k = ring.NewFakeKernel(ring.FakeConfig{Budget: 256})
	slot := ring.SlotFor(etherLen + max(set.MTU, 1500))
	port, err := ring.OpenFake(ring.Config{RxFrames: 256, TxSlots: 256, TxSlot: slot}, h.k)
	if err != nil {
		return nil, err
	}
	h.cfg = set.tcpConfig()
	h.stk, err = stack.New(stack.Config{Port: port, MAC: hostMAC, MTU: h.cfg.MTU,
		Resolver: resolver{h}, Secret: [16]byte{7}, Seed: 7})
	return h, err
}

// tcpConfig returns the configuration of our TCP for the settings of a script.
func (set *settings) tcpConfig() tcp.Config {
	c := tcp.Config{MTU: cmp.Or(set.MTU, 1500), NoTimestamps: set.NoTS, NoSACK: set.NoSACK,
		NoWScale: set.NoWScale, MSS: set.MSS,
		RcvSpace:   cmp.Or(set.RcvBuf, 64<<10),
		SYNRetries: set.SYNRetries, SYNACKRetries: set.SYNRetries,
		TimeWait: set.TimeWait, ProbeMTU: set.ProbeMTU, KeepaliveIdle: -1}
	c.RcvSpaceMax = c.RcvSpace
	c.ECN = map[string]tcp.ECNMode{"": tcp.ECNPassive, "off": tcp.ECNOff, "passive": tcp.ECNPassive,
		"classic":  tcp.ECNClassic,
		"accurate": tcp.ECNAccurate}[set.ECN]
	if set.DelayedAcks {
		c.QuickAcks = -1
	}
	l := &c.Loss
	l.CC.Algorithm, l.CC.InitialWindow = cc.Reno, set.IW
	if set.Cubic {
		l.CC.Algorithm = cc.CUBIC
	}
	l.NoTLP, l.NoFRTO = set.NoTLP, set.NoFRTO
	if set.NoRACK {
		l.Mode = loss.SACK
	}
	return c
}

type resolver struct{ h *ours }

func (r resolver) Request(dst ip.Addr) { r.h.stk.SetHop(dst, peerMAC, nil) }
func (resolver) Forget(ip.Addr)        {}

func (h *ours) now() tick.Time { return tick.Time(h.clock.Sub(h.start)) }

func (h *ours) slack(d tick.Duration) (early, late tick.Duration) {
	return tick.Millisecond, tick.Millisecond + d/50
}

// settle lets the stack do all that is due now, and collects its output.
func (h *ours) settle() {
	for range 100 {
		worked := h.stk.Step(h.clock)
		for {
			b, ok := h.k.Take(nil)
			if !ok {
				break
			}
			h.out = append(h.out, sent{b, h.now()})
		}
		if !worked && !h.stk.Blocked() {
			return
		}
	}
}

// pass advances the clock to the next event, at most to until. It returns false if the clock has reached until.
func (h *ours) pass(until tick.Time) bool {
	h.settle()
	end := h.start.Add(tick.Duration(until))
	if h.clock >= end {
		return false
	}
	h.clock = max(h.clock, min(end, h.stk.Deadline()))
	h.settle()
	return true
}

func (h *ours) send(packet []byte) error {
	f := make([]byte, etherLen+len(packet))
	copy(f, hostMAC[:])
	copy(f[6:], peerMAC[:])
	f[12], f[13] = 0x08, 0x00
	if packet[0]>>4 == 6 {
		f[12], f[13] = 0x86, 0xdd
	}
	copy(f[etherLen:], packet)
	if !h.k.Inject(f) {
		return errors.New("the fake kernel dropped the frame")
	}
	h.settle()
	return nil
}

func (h *ours) recv(until tick.Time) ([]byte, tick.Time, bool) {
	for len(h.out) == 0 {
		if !h.pass(until) {
			return nil, 0, false
		}
	}
	s := h.out[0]
	h.out = h.out[1:]
	return s.b[etherLen:], s.at, true
}

func (h *ours) sleep(until tick.Time) {
	for h.pass(until) {
	}
}

func (h *ours) shrinks() bool { return false }

func (h *ours) close() { h.stk.Close(h.clock) }

func (h *ours) stream() *bytestream.Stream {
	b := bytestream.Config{RecvBuffer: h.cfg.RcvSpaceMax, SendBuffer: h.opt.SndBuf,
		Nagle: h.opt.Nagle}
	return bytestream.New(b, func(s *bytestream.Stream) { s.Schedule() })
}

func (h *ours) listen(backlog int) string {
	h.limit = backlog
	cfg := stack.ListenConfig{Conn: h.cfg, Backlog: backlog, Cookies: tcp.CookiesUnderPressure}
	switch {
	case h.opt.Cookies:
		cfg.Cookies = tcp.CookiesAlways
	case h.opt.NoCookies:
		cfg.Cookies = tcp.CookiesNever
	}
	cfg.Accept = func(t *tcp.Tuple) (stack.Upper, error) {
		if len(h.wait) >= h.limit {
			return nil, errors.New("accept backlog is full")
		}
		n := &end{Stream: h.stream(), tuple: *t}
		h.wait = append(h.wait, n)
		return n.Stream, nil
	}
	cfg.Accepted = func(e *stack.Endpoint) {
		for _, n := range h.wait {
			if n.tuple == e.Tuple() {
				n.e = e
			}
		}
	}
	if _, err := h.stk.Listen(addr(h.e.host), hostPort, &cfg, h.clock); err != nil {
		return err.Error()
	}
	return ""
}

func (h *ours) accept(flow int, peer netip.AddrPort) string {
	for i, n := range h.wait {
		if n.tuple.RemotePort == peer.Port() {
			h.wait = append(h.wait[:i], h.wait[i+1:]...)
			h.socks[flow] = n
			return ""
		}
	}
	return "EAGAIN"
}

func (h *ours) connect(flow int, peer netip.AddrPort) string {
	t := tcp.Tuple{Local: addr(h.e.host), Remote: addr(peer.Addr()), LocalPort: hostPort,
		RemotePort: peer.Port()}
	n := &end{Stream: h.stream(), tuple: t}
	e, err := h.stk.Connect(t, &h.cfg, n.Stream, h.clock)
	if err != nil {
		return err.Error()
	}
	n.e = e
	h.socks[flow] = n
	h.settle()
	return ""
}

func (h *ours) write(flow int, b []byte) (int, string) {
	s := h.socks[flow]
	if s == nil {
		return 0, "EBADF"
	}
	n, err := s.Write(b)
	h.settle()
	return n, h.errno(s, err)
}

func (h *ours) read(flow, most int) ([]byte, string) {
	s := h.socks[flow]
	if s == nil {
		return nil, "EBADF"
	}
	b := make([]byte, most)
	n, err := s.Read(b)
	h.settle()
	if errors.Is(err, io.EOF) {
		return nil, ""
	}
	return b[:n], h.errno(s, err)
}

func (h *ours) shutdown(flow int, rd, wr bool) string {
	s := h.socks[flow]
	if s == nil {
		return "EBADF"
	}
	s.Shutdown(wr, rd)
	h.settle()
	return ""
}

func (h *ours) closeSocket(flow int, abort bool) string {
	s := h.socks[flow]
	if s == nil {
		return "EBADF"
	}
	delete(h.socks, flow)
	switch c := s.e.Conn(); {
	case abort:
		c.Abort(h.clock)
	case s.Endpoint() != nil:
		s.Release(h.clock)
	default: // still in SYN-SENT
		c.Shutdown(h.clock)
		c.Detach(h.clock)
	}
	s.e.Schedule()
	h.settle()
	return ""
}

func (h *ours) set(flow int, name string, v int) error {
	s := h.socks[flow]
	if s == nil {
		return errors.New("no such socket")
	}
	c, d := s.e.Conn(), tick.Duration(v)*tick.Millisecond
	switch name {
	case "keepalive": // milliseconds of idle time and between probes, three probes
		c.SetKeepalive(d, d, 3)
	case "user-timeout":
		c.SetUserTimeout(d)
	case "linger":
		c.SetLinger(d)
	case "quickack":
		if v == 0 {
			return errors.New("say use delayed-acks")
		}
		c.SetDelayedAck(-1)
	default:
		return fmt.Errorf("%q is not a socket option", name)
	}
	s.e.Schedule()
	h.settle()
	return nil
}
