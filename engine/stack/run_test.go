package stack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// scribe is an Upper whose bytes depend on their sequence numbers, in records of random length.
type scribe struct {
	endless
	r      *rand.Rand
	e      *Endpoint
	left   int
	most   int        // maximum length of the next record; 0: not drawn yet
	draw   *rand.Rand // source of most
	inRuns int        // segments that NextRun returned
	summed bool       // Fill returns sums
}

func newScribe(r *rand.Rand, summed bool) *scribe {
	return &scribe{r: r, summed: summed, draw: rand.New(rand.NewPCG(r.Uint64(), 1))}
}

func (u *scribe) Start(e *Endpoint, _, _ seq.Num, _ tick.Time) { u.e = e }

func (u *scribe) Next(room int) (int, bool) {
	n := min(u.left, room, u.drawn())
	u.left -= n
	u.most = 0
	return n, u.left > 0
}

func (u *scribe) drawn() int {
	if u.most == 0 && u.draw.IntN(16) == 0 {
		u.most = 1 + u.draw.IntN(1400)
	} else if u.most == 0 {
		u.most = 1 << 16
	}
	return u.most
}

func (u *scribe) NextRun(size, most int) (n int, more bool) {
	for more = true; n < most && size == u.e.EMSS() && min(u.left, u.drawn()) >= size; n++ {
		_, more = u.Next(size)
	}
	u.inRuns += n
	return n, more
}

func (u *scribe) Fill(r seq.Range, dst []byte) (uint64, bool) {
	for i := range dst {
		dst[i] = byte((uint32(r.Start) + uint32(i)) * 0x9e3779b1 >> 24)
	}
	return wire.Sum(dst, 0), u.summed
}

// inRuns counts the segments that NextRun returned to all scribes of trace.
var inRuns int

// trace returns all frames between two stacks that write data while frames are lost. change alters each stack before
// they write. space is the size of each window in bytes.
func trace(t *testing.T, seed uint64, space int, change func(*Stack)) (frames [][]byte) {
	r := rand.New(rand.NewPCG(seed, 5))
	cfg := tcp.Config{RcvSpace: space, RcvSpaceMax: space, StretchAck: 8, ProbeMTU: true,
		NoTimestamps: r.IntN(4) == 0, ECN: tcp.ECNMode(r.IntN(4))}
	cfg.Loss.Pacing = r.IntN(2) == 0
	vlan, v6, loss := uint16(r.IntN(2)*100), r.IntN(2) == 0, r.IntN(2)*100
	var u [2]*scribe
	for i := range u {
		u[i] = newScribe(r, r.IntN(2) == 0)
	}
	p := newPair(t, vlan, v6, cfg, [2]Upper{u[0], u[1]})
	p.lose = func(_ int, f []byte) bool {
		frames = append(frames, bytes.Clone(f))
		return loss > 0 && r.IntN(loss) == 0
	}
	for i := range p.s {
		change(p.s[i])
	}
	for range 120 {
		for _, u := range u {
			if r.IntN(10) == 0 {
				u.left += r.IntN(200_000)
				u.e.Schedule()
			}
		}
		p.turn()
		if r.IntN(20) == 0 {
			p.now = p.now.Add(300 * tick.Millisecond)
		}
	}
	for i := range u {
		if n := p.s[i].Stats(); n.DropChecksum+n.DropMalformed+n.DropSource > 0 {
			t.Fatalf("seed %d: the other end's frames are wrong: %+v", seed, n)
		}
	}
	frames = append(frames, fmt.Appendf(nil, "%+v %+v", p.s[0].Stats(), p.s[1].Stats()))
	for _, u := range u {
		inRuns += u.inRuns
		frames = append(frames, fmt.Appendf(nil, "%+v %+v", u.e.conn.Info(p.now),
			u.e.conn.Counters()))
	}
	return frames
}

// forgetful is a port that clears its stack's cache of the previous frame.
type forgetful struct {
	ring.Port
	s *Stack
}

func (p forgetful) AllocTx() (ring.TxBuf, bool) {
	if p.s.out.Run != tcp.RunNone {
		p.s.out = tcp.Out{}
	}
	return p.Port.AllocTx()
}

func (p forgetful) Release(x *ring.Packet) {
	p.s.last = nil
	p.Port.Release(x)
}

// inFull makes s process each frame as if it were the first.
func inFull(s *Stack) { s.port = forgetful{s.port, s} }

// TestRuns: the same frames leave with and without the fast path for runs of segments.
func TestRuns(t *testing.T) {
	sameTraces(t, 1<<20, inFull, func(*Stack) {})
}

// sameTraces compares the traces of stacks with two different alterations.
func sameTraces(t *testing.T, space int, one, other func(*Stack)) {
	all := 0
	for seed := range uint64(60) {
		want, got := trace(t, seed, space, one), trace(t, seed, space, other)
		for i := range min(len(want), len(got)) {
			if !bytes.Equal(want[i], got[i]) {
				t.Fatalf("seed %d, frame %d:\n% x\nthe other way:\n% x", seed, i, got[i], want[i])
			}
		}
		if len(want) != len(got) {
			t.Fatalf("seed %d: %d frames, the other way %d", seed, len(got), len(want))
		}
		all += len(got)
	}
	t.Logf("%d frames", all)
}
