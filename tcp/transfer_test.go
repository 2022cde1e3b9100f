package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

func TestTransferClean(t *testing.T) {
	p := newPipe(t, 1, tcp.Config{}, tcp.Config{})
	p.traceOn()
	p.exchange(300_000, 100_000)
	p.connect()
	p.run(10 * tick.Minute)
	for _, h := range []*host{&p.a, &p.b} {
		if n := h.c.Info(p.now); n.Loss.Counters.Retransmitted != 0 {
			p.fail("%s: %d segments sent again on a clean path", h.name,
				n.Loss.Counters.Retransmitted)
		}
	}
}

// randomConfig returns a random configuration of one side.
func randomConfig(r *rand.Rand) tcp.Config {
	c := tcp.Config{
		MTU:          []int{576, 1500, 1500, 4000, 9000}[r.IntN(5)],
		IPv6:         r.IntN(2) == 0,
		NoTimestamps: r.IntN(4) == 0,
		NoSACK:       r.IntN(4) == 0,
		NoWScale:     r.IntN(5) == 0,
		RcvSpace:     1 << 16,
		RcvSpaceMax:  1 << (16 + r.IntN(8)),
		ECN:          tcp.ECNMode(r.IntN(4)),
		TimeWait:     200 * tick.Minute,
		UserTimeout:  -1,
		QuickAcks:    r.IntN(3)*8 - 1,
	}
	if c.IPv6 {
		c.MTU = max(c.MTU, 1280)
	}
	if r.IntN(3) == 0 {
		c.StretchAck = 2 + r.IntN(20)
		c.AckDelay = tick.Duration(r.IntN(3)) * 50 * tick.Microsecond
	}
	return c
}

func TestTransferImpaired(t *testing.T) {
	runs := 2000
	if testing.Short() {
		runs = 200
	}
	for seed := range uint64(runs) {
		if !impaired(t, seed, false) {
			return
		}
	}
}

func impaired(t *testing.T, seed uint64, trace bool) bool {
	p, ca := impairedPipe(t, seed, randomConfig)
	if trace {
		p.traceOn()
	}
	p.connect()
	ok := t.Run("", func(t *testing.T) {
		p.t = t
		t.Logf("seed %d: %+v", seed, ca)
		p.run(20 * 60 * tick.Minute)
		for _, h := range []*host{&p.a, &p.b} {
			if n := h.c.Counters(); h.records != nil &&
				n.SplitEMSS+n.SplitWindow+n.SplitRetransmit != 0 {
				p.fail("%s: records were cut: %+v", h.name, n)
			}
		}
	})
	if !ok && !trace {
		impaired(t, seed, true)
	}
	return ok
}

// impairedPipe returns a pipe that loses, duplicates, marks and cuts segments. Its connection is not open yet.
func impairedPipe(t *testing.T, seed uint64, config func(r *rand.Rand) tcp.Config) (*pipe,
	tcp.Config) {
	r := rand.New(rand.NewPCG(seed, 2))
	ca, cb := config(r), config(r)
	p := newPipe(t, seed, ca, cb)
	p.delay = tick.Duration(r.IntN(20_000)) * tick.Microsecond
	if r.IntN(2) == 0 {
		p.jitter = tick.Duration(1+r.IntN(10_000)) * tick.Microsecond
	}
	p.loss = []float64{0, 0.01, 0.05, 0.2}[r.IntN(4)]
	p.dup = []float64{0, 0.01, 0.1}[r.IntN(3)]
	p.mark = []float64{0, 0.05}[r.IntN(2)]
	p.resize = []float64{0, 0.2}[r.IntN(2)]
	p.batch = []int{1, 4, 64}[r.IntN(3)]
	for _, h := range []*host{&p.a, &p.b} {
		h.badCRC = []float64{0, 0.02}[r.IntN(2)]
		h.nagle = r.IntN(2) == 0
		if r.IntN(3) == 0 {
			h.readSize, h.readGap = 1+r.IntN(20_000), tick.Duration(1+r.IntN(20))*tick.Millisecond
		}
		h.recvMax = 1 << (12 + r.IntN(6))
	}
	if r.IntN(2) == 0 { // the window must hold a record: another test is for smaller windows
		for _, h := range []*host{&p.a, &p.b} {
			h.recvMax = max(h.recvMax, 1<<14)
			h.records = &recordSource{h: h, rng: r, ends: map[seq.Num]bool{}}
		}
	}
	p.exchange(r.IntN(60_000), r.IntN(2)*r.IntN(60_000))
	return p, ca
}

// TestAccECNExact: the feedback reports exactly the bytes that arrived with CE (RFC 9768).
//
//req:rfc9768-3.2-2 rfc9768-3.2.3-5
func TestAccECNExact(t *testing.T) {
	for _, passive := range []tcp.ECNMode{tcp.ECNPassive, tcp.ECNAccurate} {
		for seed := range uint64(20) {
			space := tcp.Config{RcvSpace: 1 << 18, RcvSpaceMax: 1 << 18}
			ca, cb := space, space
			ca.ECN, cb.ECN = tcp.ECNAccurate, passive
			p := newPipe(t, seed, ca, cb)
			p.b.recvMax = 1 << 18
			p.mark = 0.05
			p.exchange(500_000, 1000)
			p.connect()
			p.run(10 * tick.Minute)
			n := p.a.c.Counters()
			if p.a.c.Info(p.now).ECN != tcp.ECNAccurate || n.CEBytesOut == 0 ||
				int(n.CEBytesOut) != p.markedBytes {
				t.Fatalf("seed %d: %d bytes were marked, %d reported", seed, p.markedBytes,
					n.CEBytesOut)
			}
		}
	}
}
