package sim

import (
	"math/rand/v2"

	"xwarp/bench/relay/impair"
	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// network draws two or three hosts, each with the path that its frames take, without faults.
func (s *scenario) network(mtu int) {
	r := s.rnd
	for i := range pick(r, 2, 2, 3) {
		c := impair.Config{
			Delay: pick(r, 0, 2*us, 25*us, 500*us, 10*ms, 50*ms),
			Rate:  pick[int64](r, 0, 10e9, 1e9, 100e6, 10e6),
			Queue: pick(r, 256<<10, 64<<10, 40*mtu, 1<<20),
		}
		if r.IntN(3) == 0 && c.Rate > 0 {
			c.MarkAbove = c.Queue / pick(r, 2, 8)
		}
		s.base = append(s.base, c)
		s.paths = append(s.paths, newPath(c, s.seed*3+uint64(i), mtu))
		name := string(rune('A' + i))
		cfg := HostConfig{
			Name: name, MTU: mtu, Up: s.paths[i],
			Addrs: []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}),
				{0: 0xfd, 15: byte(1 + i)}},
			RxFrames: pick(r, 64, 256, 1024), TxSlots: pick(r, 4, 16, 64, 128),
			Kernel: ring.FakeConfig{
				Start: pick[uint32](r, 0, 0xffffffc0), Budget: pick(r, 0, 1, 8),
				Manual: r.IntN(2) == 0, Poller: r.IntN(4) == 0,
			},
			Latency:  pick(r, 0, 0, us, 20*us, 200*us),
			HopDelay: pick(r, 0, 10*us, 3*ms),
			Split:    pick(r, 0, 0, 0, max(300, mtu/9), 1000),
		}
		if s.wide != nil {
			s.wide.transmit(&cfg, i)
			s.wide.vanishing(&cfg)
		}
		if s.adapt != nil {
			s.adapt(s, &cfg)
		}
		h, err := s.world.AddHost(cfg)
		if err != nil {
			panic(err)
		}
		s.hosts = append(s.hosts, h)
		s.say("%s: rx %d tx %d latency %d split %d mtu %d path %s", name, cfg.RxFrames, cfg.TxSlots,
			cfg.Latency, cfg.Split, mtu, brief(c))
	}
}

// faults draws the faults and their times. Those of the first group last until s.until.
func (s *scenario) faults(mtu int) {
	r := s.rnd
	for i := range s.hosts {
		bad := s.base[i]
		if s.one(2) {
			bad.Loss = pick(r, 0.001, 0.01, 0.05, 0.2)
		}
		if s.one(3) {
			bad.Reorder, bad.ReorderDepth = pick(r, 0.01, 0.1, 0.5), 1+r.IntN(20)
		}
		if s.one(4) {
			bad.Duplicate = pick(r, 0.01, 0.2)
		}
		if s.one(4) {
			bad.Corrupt, bad.CorruptMode = pick(r, 0.001, 0.02), impair.CorruptRaw
		}
		if s.one(4) {
			bad.Resegment = true
			s.recut = true
		}
		s.spare(&bad)
		s.loses = s.loses || bad.Loss > 0
		s.state = append(s.state, bad)
		s.paths[i].set(bad)
		s.say("faults of %s until %d: %s", s.hosts[i].Name(), s.until, brief(bad))
		s.world.After(s.until, func() {
			s.alter(i, func(c *impair.Config) {
				now := *c
				*c = s.base[i]
				c.MTU, c.MTUReply = now.MTU, now.MTUReply
			})
		})
		if s.one(5) {
			s.blackhole(i)
		}
		if mtu > 1280 && s.one(12) {
			s.narrow(i, mtu)
		}
		if s.one(12) {
			s.nic(i)
		}
	}
	if s.one(10) {
		s.reboot()
	}
	if s.one(6) {
		s.reroute(s.rnd.IntN(len(s.hosts)))
	}
}

// reroute permanently changes the delay and rate of path i: frames in flight appear late or reordered.
func (s *scenario) reroute(i int) {
	at := s.sometime()
	delay, rate := pick(s.rnd, 0, 25*us, ms, 30*ms, 80*ms), pick[int64](s.rnd, 0, 1e9, 10e6)
	if s.off("reroute") {
		return
	}
	s.say("path of %s goes another way at %v: delay %v rate %d", s.hosts[i].Name(), at, delay, rate)
	s.world.After(at, func() {
		for _, c := range []*impair.Config{&s.base[i], &s.state[i]} {
			c.Delay, c.Rate = delay, rate
			if rate == 0 {
				c.MarkAbove = 0
			}
		}
		s.paths[i].set(s.state[i])
	})
}

// spare removes the faults of a path that are left out.
func (s *scenario) spare(c *impair.Config) {
	for _, f := range []struct {
		name string
		on   bool
		undo func()
	}{
		{"loss", c.Loss > 0, func() { c.Loss = 0 }},
		{"reordering", c.Reorder > 0, func() { c.Reorder = 0 }},
		{"duplicates", c.Duplicate > 0, func() { c.Duplicate = 0 }},
		{"corruption", c.Corrupt > 0, func() { c.Corrupt = 0 }},
		{"resegmentation", c.Resegment, func() { c.Resegment = false }},
	} {
		if f.on && s.off(f.name) {
			f.undo()
		}
	}
}

// alter changes the configuration of path i.
func (s *scenario) alter(i int, f func(c *impair.Config)) {
	f(&s.state[i])
	s.paths[i].set(s.state[i])
}

// sometime draws a time before the faults stop.
func (s *scenario) sometime() tick.Duration {
	return tick.Duration(s.rnd.Int64N(int64(s.until) + 1))
}

func (s *scenario) blackhole(i int) {
	at := s.sometime()
	n := tick.Duration(s.rnd.Int64N(int64(s.until-at) + 1))
	if s.off("black hole") {
		return
	}
	if n > tick.Second {
		s.severe = true
	}
	s.say("nothing from %s passes at %v for %v", s.hosts[i].Name(), at, n)
	s.world.After(at, func() { s.alter(i, func(c *impair.Config) { c.Blackhole = true }) })
	s.world.After(at+n, func() { s.alter(i, func(c *impair.Config) { c.Blackhole = false }) })
}

// narrow lowers the path MTU, perhaps in two steps, with or without an ICMP error. It may rise again after the faults
// stop.
func (s *scenario) narrow(i, mtu int) {
	s.cuts, s.judge.cuts = true, true
	told := s.one(2)
	for _, to := range []int{min(mtu-1, pick(s.rnd, 8000, 4000, 1500)), 1280}[:1+s.rnd.IntN(2)] {
		at := s.sometime()
		if s.off("narrow path") {
			continue
		}
		s.swallows = s.swallows || !told
		s.say("path MTU of %s falls to %d at %v, told %v", s.hosts[i].Name(), to, at, told)
		s.world.After(at, func() {
			s.alter(i, func(c *impair.Config) {
				if c.MTU == 0 || to < c.MTU {
					c.MTU, c.MTUReply = to, told
				}
			})
		})
	}
	if s.one(3) {
		at := s.until + s.sometime()
		s.say("path MTU of %s is whole again at %v", s.hosts[i].Name(), at)
		s.world.After(at, func() { s.alter(i, func(c *impair.Config) { c.MTU = 0 }) })
	}
}

// nic makes the kernel of host i accept no frames for some time, or lose some.
func (s *scenario) nic(i int) {
	at, n := s.sometime(), tick.Duration(s.rnd.Int64N(int64(50*ms)))
	st := pick(s.rnd, ring.StateAgain, ring.StateBusy, ring.StateNoBuffers, ring.StateDown)
	if s.off("deaf kernel") {
		return
	}
	s.say("transmission of %s is %v at %v for %v", s.hosts[i].Name(), st, at, n)
	k := s.hosts[i].kernel
	s.world.After(at, func() { k.SetState(st) })
	s.world.After(at+n, func() { k.SetState(ring.StateOK) })
}

// reboot erases the state of a host.
func (s *scenario) reboot() {
	at := s.sometime()
	h := s.hosts[s.rnd.IntN(2)]
	if s.off("reboot") {
		return
	}
	s.rebooted = true
	s.say("%s reboots at %v", h.Name(), at)
	s.world.After(at, func() {
		if err := h.Reboot(); err != nil {
			s.world.Fail(err)
		}
		s.judge.rebooted(h)
		if s.redial != nil {
			s.redial(h)
		}
	})
}

// sealed makes path i corrupt payload but keep the TCP checksum valid, until the faults stop.
func (s *scenario) sealed(i int) {
	bad := s.base[i]
	bad.Corrupt, bad.CorruptMode = pick(s.rnd, 0.001, 0.01), pick(s.rnd, impair.CorruptSealed,
		impair.CorruptPair)
	bad.Loss = pick(s.rnd, 0, 0.01)
	s.alter(i, func(c *impair.Config) { *c = bad })
	// Corrupt FPDUs are refused and retransmitted. If bytes are held and acknowledged before their FPDU is complete or
	// its start known, a CRC error is fatal.
	s.severe, s.spoils = s.severe || s.cuts, true
	s.say("sealed corruption of %s: %s", s.hosts[i].Name(), brief(bad))
}

// flood sends SYNs from addresses that do not exist to the server until the faults stop.
func (s *scenario) flood(v6 int) {
	r := rand.New(rand.NewPCG(s.seed, 99))
	s.severe = true // without cookies, a listener drops SYNs when its queue is full
	s.say("SYN flood")
	to := s.hosts[1]
	var send func()
	send = func() {
		for range 1 + r.IntN(20) {
			to.Inject(synFrame(r, to, v6, streamPort))
		}
		if s.world.Since() < s.until {
			s.world.After(5*ms, send)
		}
	}
	s.world.After(0, send)
}

// synFrame returns a SYN to a port, from a random address and port.
func synFrame(r *rand.Rand, to *Host, v6 int, port uint16) []byte {
	src := ip.AddrFrom4([4]byte{10, 9, byte(r.Uint32()), byte(r.Uint32())})
	if v6 == 1 {
		src = ip.Addr{0: 0xfd, 1: 9, 14: byte(r.Uint32()), 15: byte(r.Uint32())}
	}
	return synFrom(r, to, v6, port, src)
}

// impossibleSources are source addresses that no other host may use (RFC 1122, 3.2.1.3).
func impossibleSources(to *Host, v6 int) []ip.Addr {
	if v6 == 1 {
		return []ip.Addr{to.Addr(1), {0: 0xff, 1: 2, 15: 1}, {}, {15: 1}}
	}
	return []ip.Addr{to.Addr(0), ip.AddrFrom4([4]byte{10, 0, 0, 255}),
		ip.AddrFrom4([4]byte{10, 7, 3, 4}), ip.AddrFrom4([4]byte{224, 0, 0, 1}),
		ip.AddrFrom4([4]byte{127, 0, 0, 1}), ip.AddrFrom4([4]byte{255, 255, 255, 255}),
		ip.AddrFrom4([4]byte{})}
}

// synFrom returns a SYN to a port from a random port of an address.
func synFrom(r *rand.Rand, to *Host, v6 int, port uint16, src ip.Addr) []byte {
	h := wire.Header{SrcPort: uint16(1024 + r.IntN(60000)), DstPort: port,
		Seq: seq.Num(r.Uint32()), Flags: wire.SYN, Window: 1000}
	p := ip.Header{Src: src, Dst: to.Addr(v6), V6: v6 == 1, Proto: ip.ProtoTCP, TTL: 64, DF: true,
		PayloadLen: h.Len()}
	e := ip.Ethernet{Src: ip.MAC{2, 9}, Dst: to.MAC(), Type: 0x0800}
	if p.V6 {
		e.Type = 0x86dd
	}
	b := make([]byte, e.Len()+p.Len()+h.Len())
	n := e.Put(b)
	n += p.Put(b[n:])
	h.Put(b[n:])
	wire.PutChecksum(b[n:], wire.Finish(wire.Sum(b[n:], p.PseudoSum(h.Len()))))
	return b
}
