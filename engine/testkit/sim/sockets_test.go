package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// socketEnd is one end of a connection over sockets, as in the kernel transport: the kernel accepts blocks of FPDUs
// with a delay, and bytes arrive in order in pieces of any size.
type socketEnd struct {
	*rdmaEnd
	c    *iwarp.Conn
	rnd  *rand.Rand
	to   *socketEnd
	emss int
	room int // maximum number of bytes of a block

	in       []byte // bytes that have arrived and are not consumed yet
	rcv, snd seq.Num
	at       tick.Time // arrival time of the last written data
	eof      bool

	writing, fin, finSent, ended, woken bool
	longest                             int
}

func (x *socketEnd) now() tick.Time { return x.rdmaEnd.c.s.world.Now() }

func (x *socketEnd) after(most tick.Duration, f func()) {
	x.rdmaEnd.c.s.world.After(tick.Duration(x.rnd.Int64N(int64(most)+1)), f)
}

// Schedule, Shutdown, Abort, EMSS, TakeBack and Break implement iwarp.Transport.
func (x *socketEnd) Schedule() {
	if !x.woken {
		x.woken = true
		x.after(0, func() { x.woken = false; x.step() })
	}
}
func (x *socketEnd) Shutdown(tick.Time) { x.fin = true; x.Schedule() }
func (x *socketEnd) Abort(tick.Time)    { x.after(0, func() { x.reset() }) }
func (x *socketEnd) TakeBack(seq.Num)   {}
func (x *socketEnd) Break()             { x.reset() }
func (x *socketEnd) EMSS() int {
	if p := x.c.Params(); p != nil && p.LongFPDUs {
		return mpa.MaxFPDU
	}
	return x.emss
}

// reset ends the connection at once here, and later at the other end.
func (x *socketEnd) reset() {
	x.end(tcp.CauseAborted)
	x.to.after(ms, func() { x.to.end(tcp.CauseReset) })
}

func (x *socketEnd) end(cause error) {
	if !x.ended {
		x.ended = true
		x.c.Ended(cause)
	}
}

// step offers arrived bytes to the connection, and writes its FPDUs.
func (x *socketEnd) step() {
	if x.ended {
		return
	}
	now := x.now()
	if x.c.Deadline() <= now {
		x.c.Expire(now)
	}
	x.offer()
	x.c.Settle(now)
	x.write()
	if d := x.c.Deadline(); d != tick.Never && d > now {
		x.rdmaEnd.c.s.world.At(d, x.step)
	}
	x.host.Wake() // its program may continue
}

// offer offers a copy of the arrived bytes in two pieces, and clears the copy: the receiver must not refer to it later.
func (x *socketEnd) offer() {
	for len(x.in) > 0 && !x.ended {
		b := bytes.Clone(x.in)
		cut := x.rnd.IntN(len(b) + 1)
		n := x.c.Offer(x.rcv, [][]byte{b[:cut], b[cut:]}, len(b), checksum.Known{})
		clear(b)
		if n == 0 {
			return
		}
		x.in, x.rcv = x.in[n:], x.rcv.Add(n)
		x.c.Advance(x.rcv)
	}
}

// write fills a block with FPDUs and sends it.
func (x *socketEnd) write() {
	if x.writing || x.ended || x.finSent {
		return
	}
	emss, out := x.EMSS(), mpa.Vector{Room: make([]byte, x.room)}
	for out.Space() >= max(emss, mpa.MinFPDU) && out.Len() < x.room {
		n, _ := x.c.Next(emss)
		if n == 0 {
			break
		}
		if n > max(emss, 1<<10) { // start-up frames are shorter
			x.fail("%d bytes for a segment of %d", n, emss)
			return
		}
		x.longest = max(x.longest, n)
		if !x.c.Gather(seq.Of(x.snd.Add(out.Len()), n), &out) {
			x.fail("Gather of %d bytes", n)
			return
		}
	}
	block := bytes.Join(out.Pieces(), nil) // the kernel's copy
	if len(block) == 0 {
		x.finish()
		return
	}
	x.writing = true
	x.carry(block)
	x.after(ms, func() {
		x.writing = false
		if !x.ended {
			x.snd = x.snd.Add(len(block))
			x.c.Acked(x.snd)
			x.step()
		}
	})
}

// carry lets the bytes of b arrive in pieces.
func (x *socketEnd) carry(b []byte) {
	for len(b) > 0 {
		n := 1 + x.rnd.IntN(min(len(b), pick(x.rnd, 10, 3000, 100_000)))
		piece := b[:n]
		b = b[n:]
		x.arrives(func() { x.to.in = append(x.to.in, piece...); x.to.step() })
	}
}

// arrives runs f at the other end after all earlier data.
func (x *socketEnd) arrives(f func()) {
	x.at = max(x.at, x.now()).Add(tick.Duration(x.rnd.IntN(50_000)))
	x.rdmaEnd.c.s.world.At(x.at, func() {
		if !x.to.ended {
			f()
		}
	})
}

// finish sends FIN when it is due, and ends the connection when both ends have finished.
func (x *socketEnd) finish() {
	if x.fin && !x.finSent && !x.writing {
		x.finSent = true
		x.arrives(func() {
			x.to.eof = true
			x.to.c.PeerClosed(x.now())
			x.to.step()
			x.to.finish()
		})
	}
	if x.finSent && x.eof {
		x.end(nil)
	}
}

// drawSockets creates the scenario of a seed: two programs connected by sockets.
func drawSockets(t *testing.T, seed uint64) (s *scenario, c *rdmaConn, ends [2]*socketEnd) {
	s = quietScenario(t, seed, 1500, impair.Config{})
	r := rand.New(rand.NewPCG(seed, 3))
	s.rnd, s.pause = r, 500*ms // until the data accepted by sockets has arrived
	cfg := rdmaConfig{sockets: true, verbs: true, windows: s.one(3), bulk: s.one(2), pack: s.one(2),
		window: pick(r, 24<<10, 256<<10, 1<<20), depth: pick(r, 1, 4, 64), ops: pick(r, 3, 8, 20),
		maxOp: pick(r, 200, 20_000, 200_000), acceptDelay: pick(r, 0, ms)}
	if s.one(5) {
		cfg.early = endAbort
	}
	cfg.ini = startup.Config{Markers: s.one(2), IRD: 8, ORD: 8, LongFPDUs: !s.one(4),
		RTRs: pick(r, startup.RTRSend, startup.RTRWrite, startup.RTRRead, 0)}
	cfg.ini.NoCRC = s.one(3)
	cfg.rsp = startup.Config{Markers: s.one(2), LongFPDUs: !s.one(4), NoCRC: s.one(3)}
	c = newRDMA(s, cfg, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, c)
	for i, e := range []*rdmaEnd{c.a, c.b} {
		e.iw = &overtcp.Conn{}
		ends[i] = &socketEnd{rdmaEnd: e, c: &e.iw.Conn, rnd: r, rcv: seq.Num(7 - i),
			snd: seq.Num(6 + i), emss: pick(r, 512, 1448, 8948), room: pick(r, 70_000, 256<<10)}
		k := e.config(i == 1)
		k.Reliable = true
		if err := e.iw.Conn.Init(k); err != nil {
			t.Fatal(err)
		}
	}
	ends[0].to, ends[1].to = ends[1], ends[0]
	c.a.ready(r)
	c.b.ready(r)
	for _, x := range ends {
		x.host.Each(func(now tick.Time) {
			posted := x.next
			if x.pump(now); x.next > posted {
				x.Schedule()
			}
		})
	}
	return s, c, ends
}

// TestSockets runs connections over sockets, with FPDUs of one segment or, if both ends offer it, of up to 64 KiB:
// every verb, blocks and pieces of any size, with and without markers and CRCs. Some are reset in the middle.
func TestSockets(t *testing.T) {
	var long, short atomic.Int64
	each(t, 1, 60, func(seed uint64) error {
		s, c, ends := drawSockets(t, seed)
		for _, x := range ends {
			x.c.Begin(x, x.snd, x.rcv, Epoch)
			x.Schedule()
		}
		if c.cfg.early == endAbort {
			x := ends[s.rnd.IntN(2)]
			s.world.After(tick.Duration(s.rnd.Int64N(int64(20*ms))), x.reset)
		}
		closed := func() bool { return c.a.closed > 0 && c.b.closed > 0 }
		err := s.world.Run(Epoch.Add(30*tick.Second), closed)
		if err == nil && !closed() {
			err = fmt.Errorf("not over: %d of %d and %d of %d operations", c.a.acks, len(c.a.ops),
				c.b.acks, len(c.b.ops))
		}
		if err == nil {
			err = c.verdict()
		}
		both := c.cfg.ini.LongFPDUs && c.cfg.rsp.LongFPDUs
		for _, x := range ends {
			if p := x.c.Params(); err == nil && p != nil && p.LongFPDUs != both {
				err = fmt.Errorf("%s: long FPDUs %v, want %v", x.name, p.LongFPDUs, both)
			}
			if x.longest > 20_000 {
				long.Add(1)
			} else {
				short.Add(1)
			}
		}
		if err != nil {
			return fmt.Errorf("seed %d: %w\n%s", seed, err, brief(c.cfg))
		}
		return nil
	})
	if long.Load() < 10 || short.Load() < 10 {
		t.Error("FPDUs of both kinds were not tried")
	}
	t.Logf("%d ends had FPDUs of more than 20,000 bytes, %d had none", long.Load(), short.Load())
}
