package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// nearWrap makes ring indices overflow after a few entries.
const nearWrap = 1<<32 - 5

// fake opens a socket on a fake kernel and audits it at the end.
func fake(t testing.TB, c Config, fc FakeConfig) (*Socket, *FakeKernel) {
	t.Helper()
	k := NewFakeKernel(fc)
	s, err := OpenFake(c, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		audit(t, s, k)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, k
}

func audit(t testing.TB, s Port, k *FakeKernel) {
	t.Helper()
	if err := s.Audit(); err != nil {
		t.Fatal(err)
	}
	if k != nil {
		if err := k.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// pattern fills b, a frame of at least 14 bytes, so that each byte depends on id, the length and its offset. The
// Ethernet header has unicast addresses and an EtherType for experiments. The id follows it if there is room.
func pattern(b []byte, id uint32) []byte {
	r := rand.NewPCG(uint64(id), uint64(len(b)))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	for ; i < len(b); i++ {
		b[i] = byte(r.Uint64())
	}
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	if len(b) >= 18 {
		binary.BigEndian.PutUint32(b[14:], id)
	}
	return b
}

func newFrame(n int, id uint32) []byte { return pattern(make([]byte, n), id) }

// transmit queues a frame for Flush, and fails the test if there is no slot.
func transmit(t testing.TB, p Port, f []byte) {
	t.Helper()
	b, ok := p.AllocTx()
	if !ok {
		t.Fatal("no transmit slot")
	}
	p.Send(b, copy(b.Data, f))
}

// small configures a socket with few chunks.
var small = Config{RxFrames: 16, TxSlots: 8, MaxFrags: 4}
