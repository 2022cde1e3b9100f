package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/bench/relay/impair"
	"xwarp/engine/bytestream"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// bulk is one transfer: from writes as fast as possible, to reads immediately.
type bulk struct {
	from, to *watched
	total    int // bytes to write; 0: unlimited
	wrote    int
	read     int
	buf      []byte
}

// watched is a Stream whose consumer runs after each step in which it had an event.
type watched struct {
	*bytestream.Stream
	q   *runQueue
	run func()
	due bool
}

// runQueue holds the consumers of one host that have work, so that a step does not check them all.
type runQueue struct{ due []*watched }

func (q *runQueue) pump(tick.Time) {
	todo := q.due
	q.due = nil
	for _, w := range todo {
		w.due = false
		w.run()
	}
}

func (w *watched) update() {
	if !w.due {
		w.due = true
		w.q.due = append(w.q.due, w)
	}
}

func (w *watched) Acked(to seq.Num)                   { w.Stream.Acked(to); w.update() }
func (w *watched) Advance(to seq.Num)                 { w.Stream.Advance(to); w.update() }
func (w *watched) Event(ev tcp.Events, now tick.Time) { w.Stream.Event(ev, now); w.update() }

func newWatched(h *Host, q *runQueue, buffer int, run func()) *watched {
	c := bytestream.Config{SendBuffer: buffer, RecvBuffer: buffer}
	return &watched{Stream: bytestream.New(c, func(x *bytestream.Stream) {
		h.Kick(x.Schedule)
	}), q: q, run: run}
}

// bulks runs transfers from host A to host B.
type bulks struct {
	s    *scenario
	cfg  tcp.Config
	size int // size of the buffers in bytes
	a, b runQueue
	all  map[uint16]*bulk // by the port at host A
}

func newBulks(s *scenario, cfg tcp.Config, size int) *bulks {
	m := &bulks{s: s, cfg: cfg, size: size, all: map[uint16]*bulk{}}
	s.hosts[0].Each(m.a.pump)
	s.hosts[1].Each(m.b.pump)
	lc := stack.ListenConfig{Conn: cfg, Backlog: 128, Accept: func(t *tcp.Tuple) (stack.Upper,
		error) {
		k := m.all[t.RemotePort]
		k.to = newWatched(s.hosts[1], &m.b, size, k.receive)
		return k.to, nil
	}}
	if _, err := s.hosts[1].Stack().Listen(s.hosts[1].Addr(0), streamPort, &lc,
		s.world.Now()); err != nil {
		panic(err)
	}
	return m
}

// start starts a transfer of total bytes, or an unlimited one if total is 0.
func (m *bulks) start(total int) *bulk {
	k := &bulk{total: total, buf: make([]byte, 64<<10)}
	a := m.s.hosts[0]
	port := uint16(50000 + len(m.all))
	m.all[port] = k
	k.from = newWatched(a, &m.a, m.size, k.send)
	t := tcp.Tuple{Local: a.Addr(0), Remote: m.s.hosts[1].Addr(0), LocalPort: port,
		RemotePort: streamPort}
	if _, err := a.Stack().Connect(t, &m.cfg, k.from, m.s.world.Now()); err != nil {
		panic(err)
	}
	a.Wake()
	return k
}

func (k *bulk) send() {
	for k.total == 0 || k.wrote < k.total {
		b := k.buf
		if k.total > 0 {
			b = b[:min(len(b), k.total-k.wrote)]
		}
		n, err := k.from.Write(b)
		k.wrote += n
		if err != nil || n == 0 {
			return
		}
	}
}

func (k *bulk) receive() {
	for {
		n, _ := k.to.Read(k.buf)
		k.read += n
		if n == 0 {
			return
		}
	}
}

// goodput returns the bytes per second of one transfer, and the percentage of its bytes that were retransmitted.
func goodput(t *testing.T, seed uint64, lc loss.Config, ecn tcp.ECNMode, path impair.Config, buffer,
	total int) (rate, again float64) {
	back := impair.Config{Delay: path.Delay}
	s := quietScenario(t, seed, 1500, path)
	s.world.Check, s.world.Tap = nil, nil
	s.paths[1].set(back)
	cfg := tcp.Config{RcvSpace: buffer, RcvSpaceMax: buffer, Loss: lc, ECN: ecn, StretchAck: 8,
		UserTimeout: -1}
	k := newBulks(s, cfg, buffer).start(total)
	if err := s.world.Run(Epoch.Add(2000*tick.Second), func() bool {
		return k.read >= total
	}); err != nil {
		t.Fatal(err)
	}
	if k.read < total {
		t.Fatalf("%d of %d bytes", k.read, total)
	}
	sent := s.hosts[0].Stack().Stats().TxPayload
	seconds := float64(s.world.Since()) / 1e9
	return float64(total) / seconds, (float64(sent)/float64(total) - 1) * 100
}

// TestGoodput compares goodput, by buffer size, loss and round trip, with the committed table, so that a change of loss
// recovery or congestion control shows as a diff. It runs in virtual time: the numbers are the same on every machine.
// The bottleneck has 1 Gb/s and a queue of 256 KiB; DCTCP's marking threshold is a 16th of the queue. -update writes
// the table.
func TestGoodput(t *testing.T) {
	const seeds = 2
	columns := []struct {
		name string
		lc   loss.Config
		ecn  tcp.ECNMode
	}{
		{"cubic", loss.Config{}, tcp.ECNOff},
		{"cubic, paced", loss.Config{Pacing: true}, tcp.ECNOff},
		{"newreno", loss.Config{CC: cc.Config{Algorithm: cc.Reno}, Mode: loss.SACK}, tcp.ECNOff},
		{"dctcp", loss.Config{CC: cc.Config{Algorithm: cc.DCTCP}}, tcp.ECNAccurate},
	}
	var out bytes.Buffer
	fmt.Fprintf(&out,
		"goodput in kB/s (bytes sent again in %%), 1 Gb/s, queue 256 KiB\n%8s %6s %7s", "rtt",
		"buffer", "loss")
	for _, c := range columns {
		fmt.Fprintf(&out, " %17s", c.name)
	}
	out.WriteByte('\n')
	for _, rtt := range []tick.Duration{50 * us, ms, 20 * ms, 100 * ms} {
		for _, buffer := range []int{64 << 10, 1 << 20} {
			for _, drop := range []float64{0, 0.001, 0.01, 0.03, 0.1, 0.3} {
				fmt.Fprintf(&out, "%6dus %5dK %7g", rtt/us, buffer>>10, drop)
				for _, c := range columns {
					var rate, again float64
					for seed := range uint64(seeds) {
						p := impair.Config{Delay: rtt / 2, Rate: 1e9, Queue: 256 << 10, Loss: drop}
						if c.lc.CC.Algorithm == cc.DCTCP {
							p.MarkAbove = p.Queue / 16
						}
						r, a := goodput(t, 100*seed+7, c.lc, c.ecn, p, buffer, bulkBytes(drop))
						rate, again = rate+r/seeds, again+a/seeds
					}
					fmt.Fprintf(&out, " %9.0f (%5.1f)", rate/1000, again)
				}
				out.WriteByte('\n')
			}
		}
	}
	golden(t, "goodput.golden", out.Bytes())
}

// bulkBytes is the size of a transfer: smaller at high loss, where a longer transfer adds no information.
func bulkBytes(drop float64) int {
	switch {
	case drop >= 0.1:
		return 200_000
	case drop >= 0.01:
		return 1_000_000
	}
	return 3_000_000
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *flagUpdate {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-committed +now); if that is meant, -update:\n%s", name, d)
	}
}

// TestFairness: 64 flows share one bottleneck. In the last 12 of 16 seconds, Jain's index of their goodput must be at
// least 0.97, and payload must fill 85 % of the link.
func TestFairness(t *testing.T) {
	for _, c := range []struct {
		name string
		lc   loss.Config
		ecn  tcp.ECNMode
		mark int
	}{
		{name: "cubic"},
		{name: "cubic, paced", lc: loss.Config{Pacing: true}},
		{name: "newreno", lc: loss.Config{CC: cc.Config{Algorithm: cc.Reno}}},
		{name: "dctcp", lc: loss.Config{CC: cc.Config{Algorithm: cc.DCTCP}}, ecn: tcp.ECNAccurate,
			mark: 64 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const flows, rate = 64, 200e6
			path := impair.Config{Delay: 5 * ms, Rate: rate, Queue: 512 << 10, MarkAbove: c.mark}
			s := quietScenario(t, 5, 1500, path)
			s.world.Check, s.world.Tap = nil, nil
			s.paths[1].set(impair.Config{Delay: 5 * ms})
			cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20, Loss: c.lc, ECN: c.ecn,
				StretchAck: 8}
			run := newBulks(s, cfg, 1<<20)
			all := make([]*bulk, flows)
			for i := range all {
				s.world.After(tick.Duration(i)*7*ms, func() { all[i] = run.start(0) })
			}
			if err := s.world.Run(Epoch.Add(4*tick.Second), nil); err != nil {
				t.Fatal(err)
			}
			var before [flows]int
			for i, b := range all {
				before[i] = b.read
			}
			const span = 12
			if err := s.world.Run(Epoch.Add((4+span)*tick.Second), nil); err != nil {
				t.Fatal(err)
			}
			var sum, squares float64
			for i, b := range all {
				x := float64(b.read - before[i])
				sum, squares = sum+x, squares+x*x
			}
			jain := sum * sum / (flows * squares)
			used := sum * 8 / span / rate
			t.Logf("Jain %.4f, link %.1f %% used", jain, used*100)
			if jain < 0.97 {
				t.Errorf("Jain's index is %.4f, want at least 0.97", jain)
			}
			if used < 0.85 {
				t.Errorf("payload fills %.1f %% of the link, want at least 85 %%", used*100)
			}
		})
	}
}
