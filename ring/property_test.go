package ring

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "run the property tests with this seed only")

// model drives a socket with random operations and predicts the results.
type model struct {
	t    *testing.T
	r    *rand.Rand
	s    *Socket
	k    *FakeKernel
	next uint32 // id of the next frame in either direction

	coming  [][]byte // injected, not received
	got     []seen   // received, not released
	writing []TxBuf
	sent    map[uint32]int // id -> length of frames given to Send
	lastOut uint32
	dropped uint64 // injected frames of more pieces than MaxFrags
}

type seen struct {
	p    Packet
	want []byte
}

func TestRandomOperations(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = make([]uint64, 60)
		for i := range seeds {
			seeds[i] = rand.Uint64()
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fc := FakeConfig{Start: nearWrap - uint32(r.IntN(100)), Budget: 1 + r.IntN(40),
				Manual: r.IntN(2) == 0, Poller: r.IntN(4) == 0}
			c := Config{RxFrames: 4 + uint32(r.IntN(60)), TxSlots: 1 + uint32(r.IntN(30)),
				TxSlot: 1 + uint32(r.IntN(4)), Kicks: 1 + uint32(r.IntN(8))}
			c.MaxFrags = 1 + uint32(r.IntN(4))
			c.TxSize, c.FillSize = powerOfTwo(c.TxSlot)<<r.IntN(3), 4<<r.IntN(4)
			s, k := fake(t, c, fc)
			m := &model{t: t, r: r, s: s, k: k, sent: map[uint32]int{}}
			for range 1500 {
				m.step()
				audit(t, s, k)
			}
			m.drain()
		})
	}
}

func (m *model) step() {
	switch m.r.IntN(12) {
	case 0, 1:
		m.inject()
	case 2, 3:
		m.recv(1 + m.r.IntN(8))
	case 4, 5, 6:
		m.release()
	case 7:
		m.s.Refill()
	case 8:
		m.write()
	case 9:
		m.send()
	case 10:
		m.s.Flush()
		m.take()
	case 11:
		m.rare()
	}
}

func (m *model) inject() {
	m.next++
	f := newFrame(18+m.r.IntN(6*1200), m.next)
	size := 1200 + m.r.IntN(m.k.chunkData()-1200)
	pieces := (len(f) + size - 1) / size
	if !m.k.InjectSplit(f, size) {
		return
	}
	if pieces > int(m.s.cfg.MaxFrags) {
		m.dropped++
		return
	}
	m.coming = append(m.coming, f)
}

func (m *model) recv(n int) {
	batch := make([]Packet, n)
	for _, p := range batch[:m.s.Recv(batch)] {
		if len(m.coming) == 0 {
			m.t.Fatal("received a packet that was not injected")
		}
		m.got = append(m.got, seen{p, m.coming[0]})
		m.coming = m.coming[1:]
	}
}

// release releases a random packet, after a check that it has not changed since it arrived.
func (m *model) release() {
	if len(m.got) == 0 {
		return
	}
	i := m.r.IntN(len(m.got))
	g := &m.got[i]
	if !bytes.Equal(g.p.AppendTo(nil), g.want) {
		m.t.Fatalf("a received packet of %d bytes changed before its release", len(g.want))
	}
	m.s.Release(&g.p)
	m.got = append(m.got[:i], m.got[i+1:]...)
}

func (m *model) write() {
	if b, ok := m.s.AllocTx(); ok {
		m.writing = append(m.writing, b)
	}
}

func (m *model) send() {
	if len(m.writing) == 0 {
		return
	}
	b := m.writing[0]
	m.writing = m.writing[1:]
	if m.r.IntN(8) == 0 {
		m.s.CancelTx(b)
		return
	}
	m.next++
	n := 18 + m.r.IntN(len(b.Data)-17)
	pattern(b.Data[:n], m.next)
	m.sent[m.next] = n
	m.s.Send(b, n)
}

// take checks that frames are transmitted complete and in order. In StateBusy some are lost.
func (m *model) take() {
	for range m.r.IntN(6) {
		f, ok := m.k.Take(nil)
		if !ok {
			return
		}
		id := binary.BigEndian.Uint32(f[14:])
		if n, known := m.sent[id]; !known || n != len(f) || id <= m.lastOut ||
			!bytes.Equal(f, newFrame(n, id)) {
			m.t.Fatalf(
				"frame %d of %d bytes was transmitted; sent as %d bytes, the last one was %d", id,
				len(f), n, m.lastOut)
		}
		delete(m.sent, id)
		m.lastOut = id
	}
}

func (m *model) rare() {
	switch m.r.IntN(4) {
	case 0:
		m.s.Reap()
	case 1:
		m.k.CompleteFrames(m.r.IntN(9) - 1)
	case 2:
		m.k.SetState(State(m.r.IntN(int(StateError) + 1)))
	case 3:
		m.k.SetState(StateOK)
	}
}

// drain receives and sends all that is outstanding, and checks that no frame and no chunk is missing.
func (m *model) drain() {
	m.k.SetState(StateOK)
	for range 1000 {
		m.recv(8)
		m.release()
		m.send()
		m.s.Flush()
		m.take()
		m.k.CompleteFrames(-1)
		m.s.Reap()
		m.s.Refill()
		audit(m.t, m.s, m.k)
	}
	lost := m.k.FakeStats().Lost
	if len(m.coming) != 0 || uint64(len(m.sent)) != lost {
		m.t.Errorf("%d injected packets never came, %d sent frames missing of which %d lost",
			len(m.coming), len(m.sent), lost)
	}
	if st := m.s.Stats(); st.RxOversize != m.dropped {
		m.t.Errorf("%d packets counted oversize, want %d", st.RxOversize, m.dropped)
	}
	c := m.s.Census()
	fill := min(m.s.cfg.RxFrames, m.s.cfg.FillSize)
	if want := (Census{OwnerFill: fill, OwnerFree: m.s.cfg.Frames() - fill}); c != want {
		m.t.Errorf("at the end %v, want %v", c, want)
	}
}
