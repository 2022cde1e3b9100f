package stack

import (
	"testing"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// resolver is a Resolver with one answer for all addresses. It answers at once, or, if slow is set, not at all.
type resolver struct {
	s        *Stack
	mac      [6]byte
	slow     bool
	asked    []ip.Addr
	followed map[ip.Addr]bool
}

func newResolver(mac [6]byte) *resolver { return &resolver{mac: mac, followed: map[ip.Addr]bool{}} }

func (r *resolver) Request(dst ip.Addr) {
	r.asked = append(r.asked, dst)
	r.followed[dst] = true
	if !r.slow {
		r.s.SetHop(dst, r.mac, nil)
	}
}

func (r *resolver) Forget(dst ip.Addr) { delete(r.followed, dst) }

// pair is two stacks on fake kernels.
type pair struct {
	s    [2]*Stack
	k    [2]*ring.FakeKernel
	e    *Endpoint // of the active end, which is the first
	now  tick.Time
	last [2][]byte                         // the last frame sent by each stack
	lose func(from int, frame []byte) bool // returns true to drop a frame; nil: drops none
}

var macs = [2][6]byte{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

func pairAddr(v6 bool, i int) ip.Addr {
	if v6 {
		return ip.Addr{0: 0xfd, 15: byte(i + 1)}
	}
	return ip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
}

// newPair opens a connection from the first stack to the second.
func newPair(tb testing.TB, vlan uint16, v6 bool, cfg tcp.Config, upper [2]Upper) *pair {
	tb.Helper()
	p := newPairWith(tb, v6, cfg, upper, func(i int, c *Config) { c.VLAN = vlan })
	if p.e.conn.State() != tcp.Established {
		tb.Fatal(p.e.conn.State())
	}
	return p
}

// newPairWith is newPair with stacks whose configuration change completes. The connection may not be established yet.
func newPairWith(tb testing.TB, v6 bool, cfg tcp.Config, upper [2]Upper,
	change func(i int, c *Config)) *pair {
	tb.Helper()
	p := &pair{now: tick.Time(tick.Second)}
	for i := range p.s {
		r := newResolver(macs[1-i])
		c := Config{MAC: macs[i], MTU: 1500, Resolver: r}
		change(i, &c)
		p.k[i] = ring.NewFakeKernel(ring.FakeConfig{Budget: 256, MTU: c.MTU})
		sock, err := ring.OpenFake(ring.Config{RxFrames: 256, TxSlots: 256,
			TxSlot: ring.SlotFor(c.MTU + 22)}, p.k[i])
		if err == nil {
			c.Port = sock
			p.s[i], err = New(c)
			r.s = p.s[i]
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	listen := &ListenConfig{Conn: cfg, Accept: func(*tcp.Tuple) (Upper, error) {
		return upper[1], nil
	}}
	if _, err := p.s[1].Listen(pairAddr(v6, 1), 7, listen, p.now); err != nil {
		tb.Fatal(err)
	}
	t := tcp.Tuple{Local: pairAddr(v6, 0), Remote: pairAddr(v6, 1), LocalPort: 1024, RemotePort: 7}
	var err error
	if p.e, err = p.s[0].Connect(t, &cfg, upper[0], p.now); err != nil {
		tb.Fatal(err)
	}
	for range 8 {
		p.turn()
	}
	return p
}

// turn runs one turn of each end.
func (p *pair) turn() {
	for i := range p.s {
		p.now = p.now.Add(20 * tick.Microsecond)
		p.s[i].Step(p.now)
		for f, ok := p.k[i].Take(nil); ok; f, ok = p.k[i].Take(nil) {
			p.last[i] = f
			if p.lose == nil || !p.lose(i, f) {
				p.k[1-i].Inject(f)
			}
		}
	}
}
