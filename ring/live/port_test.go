package live

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// kernel is the program and the Port below: both send to the same list.
type kernel struct {
	ring.Port
	r     *rand.Rand
	slots []Slot
	first uint32
	state *State
	wait  [][]byte
	got   [][]byte
	free  int // slots of the Port below
	errno func() (left int, e unix.Errno)
}

func (k *kernel) Run(n int) unix.Errno {
	cut, e := 0, unix.Errno(0)
	if k.errno != nil {
		cut, e = k.errno()
	}
	for range max(0, n-cut) {
		s := &k.slots[k.state.next-k.first]
		k.state.next++
		if s.length > 0 {
			k.got = append(k.got, bytes.Clone(s.frame[:s.length]))
		}
	}
	return e
}

func (k *kernel) AllocTx() (ring.TxBuf, bool) {
	if k.free == 0 {
		return ring.TxBuf{}, false
	}
	k.free--
	return ring.TxBuf{Data: make([]byte, 4096)}, true
}

func (k *kernel) Send(b ring.TxBuf, n int) { k.wait = append(k.wait, bytes.Clone(b.Data[:n])) }

func (k *kernel) Flush() ring.State {
	if k.r.IntN(8) == 0 && len(k.wait) > 0 {
		return ring.StateAgain
	}
	k.got = append(k.got, k.wait...)
	k.free += len(k.wait)
	k.wait = nil
	return ring.StateOK
}

func (k *kernel) CancelTx(ring.TxBuf) { k.free++ }

func (k *kernel) Info() ring.Info { return ring.Info{TxRoom: 4096} }

func (k *kernel) Stats() ring.Stats { return ring.Stats{} }

func newPort(seed uint64, slots int) (*Port, *kernel) {
	m := Memory{Slots: make([]Slot, slots), First: 1024, State: new(State)}
	k := &kernel{r: rand.New(rand.NewPCG(seed, 1)), slots: m.Slots, first: m.First, state: m.State,
		free: 8}
	on := new(atomic.Bool)
	on.Store(true)
	return Wrap(k, k, m, on), k
}

// TestOrder: in any transmit mode, frames leave in the order in which they were written, each once and whole, while
// signals end runs early, runs fail, and the Port below has no room. The device accepts live frames intermittently, and
// frames are as long as the current room.
func TestOrder(t *testing.T) {
	var all ring.LiveStats
	longest := 0
	for seed := range uint64(300) {
		p, k := newPort(seed, 64)
		r := k.r
		k.errno = func() (int, unix.Errno) {
			switch r.IntN(6) {
			case 0:
				return r.IntN(40), unix.EINTR
			case 1:
				return 1 << 20, unix.ENOMEM
			}
			return 0, 0
		}
		var want [][]byte
		for len(want) < 2000 {
			if r.IntN(20) == 0 {
				p.on.Store(!p.on.Load())
			}
			room := p.Info().TxRoom
			for range r.IntN(70) {
				b, ok := p.AllocTx()
				if !ok {
					break
				}
				if r.IntN(10) == 0 {
					p.CancelTx(b)
					continue
				}
				n := 14 + r.IntN(room-13)
				longest = max(longest, n)
				for i := range min(n, 32) {
					b.Data[i] = byte(r.Uint32())
				}
				want = append(want, bytes.Clone(b.Data[:n]))
				p.Send(b, n)
			}
			p.Flush()
		}
		for tries := 0; len(k.got) < len(want); tries++ {
			if p.Flush(); tries == 10_000 {
				t.Fatalf("seed %d: %d of %d frames left", seed, len(k.got), len(want))
			}
		}
		if err := equal(k.got, want); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s := p.Live()
		if s.Frames+s.Single != uint64(len(want)) {
			t.Errorf("seed %d: %+v for %d frames", seed, s, len(want))
		}
		all.Runs, all.Single, all.Failed = all.Runs+s.Runs, all.Single+s.Single, all.Failed+s.Failed
	}
	if longest <= Room || all.Runs == 0 || all.Single == 0 || all.Failed == 0 {
		t.Errorf("%+v, frames of up to %d bytes: something was not tried", all, longest)
	}
}

func equal(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d frames, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("frame %d: %d bytes %x, want %d bytes %x", i, len(got[i]),
				got[i][:14], len(want[i]), want[i][:14])
		}
	}
	return nil
}

// TestRoomAfterFlush: the room changes when all slots are free, and not while a writer holds one.
func TestRoomAfterFlush(t *testing.T) {
	p, _ := newPort(1, 8)
	b, _ := p.AllocTx()
	p.on.Store(false)
	for p.Flush() != ring.StateOK {
	}
	if got := p.Info().TxRoom; got != Room {
		t.Errorf("%d bytes while the writer holds a slot of %d", got, Room)
	}
	p.CancelTx(b)
	for p.Flush() != ring.StateOK {
	}
	if got := p.Info().TxRoom; got != 4096 {
		t.Errorf("%d bytes, want those of the Port below", got)
	}
}

// TestSlotOverFlush: a slot that its writer holds while others are flushed, and then returns, does not leak, and later
// frames leave.
func TestSlotOverFlush(t *testing.T) {
	p, k := newPort(1, 8)
	for range 100 {
		b, ok := p.AllocTx()
		if !ok {
			t.Fatal("no slot")
		}
		p.Flush()
		p.CancelTx(b)
		p.Flush()
	}
	for _, n := range []int{Room + 1, 100} {
		b, _ := p.AllocTx()
		p.Send(b, n)
	}
	for p.Flush() != ring.StateOK {
	}
	if s := p.Stats(); len(k.got) != 1 || len(k.got[0]) != 100 || s.TxInvalid != 1 ||
		p.Live().Single != 1 {
		t.Errorf("%d frames left, %+v", len(k.got), s)
	}
}
