package ring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// pass sends n frames through a Fault in both directions and returns the ids in the order of arrival, and the port.
func pass(t *testing.T, cfg FaultConfig, n uint32) (rx, tx []uint32, f *Fault) {
	t.Helper()
	s, k := fake(t, Config{RxFrames: 256, TxSlots: 256, TxSlot: 2}, FakeConfig{Start: nearWrap})
	f = NewFault(s, cfg)
	batch := make([]Packet, 7)
	check := func(b []byte) uint32 {
		id := binary.BigEndian.Uint32(b[14:])
		diff := 0
		for i, c := range newFrame(len(b), id) {
			if b[i] != c {
				diff++
			}
		}
		if diff > 1 {
			t.Errorf("frame %d differs in %d octets", id, diff)
		}
		return id
	}
	for i := uint32(0); i < n || f.Late() > 0; i++ {
		if i < n {
			k.Inject(newFrame(100+int(i)*5, i))
			transmit(t, f, newFrame(100+int(i)*5, i))
		}
		for j := range batch[:f.Recv(batch)] {
			rx = append(rx, check(batch[j].AppendTo(nil)))
			f.Release(&batch[j])
		}
		f.Refill()
		f.Flush()
		for {
			b, ok := k.Take(nil)
			if !ok {
				break
			}
			tx = append(tx, check(b))
		}
		f.Reap()
		audit(t, f, k)
	}
	if c := s.Census(); c[OwnerFill] != 256 || c[OwnerFree] != 512 {
		t.Errorf("at the end %v", c)
	}
	return rx, tx, f
}

func TestFaults(t *testing.T) {
	const n = 400
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	for _, c := range []struct {
		name  string
		rates Rates
		check func(got []uint32, st FaultStats) string
	}{
		{"none", Rates{}, func(got []uint32, _ FaultStats) string {
			if !slices.Equal(got, all) {
				return "not the same frames"
			}
			return ""
		}},
		{"drop", Rates{Drop: 0.2}, func(got []uint32, st FaultStats) string {
			if uint64(n-len(got)) != st.Dropped || st.Dropped < 40 || st.Dropped > 130 ||
				!slices.IsSorted(got) {
				return "wrong number of losses"
			}
			return ""
		}},
		{"duplicate", Rates{Duplicate: 0.2}, func(got []uint32, st FaultStats) string {
			if uint64(len(got)-n) != st.Duplicated || st.Duplicated < 40 ||
				!slices.Equal(slices.Compact(slices.Clone(got)), all) {
				return "wrong number of duplicates"
			}
			return ""
		}},
		{"delay", Rates{Delay: 0.2}, func(got []uint32, st FaultStats) string {
			if slices.IsSorted(got) || st.Delayed < 40 {
				return "in order"
			}
			if slices.Sort(got); !slices.Equal(got, all) {
				return "not the same frames"
			}
			return ""
		}},
		{"everything", Rates{0.1, 0.1, 0, 0.3}, func(got []uint32, st FaultStats) string {
			if uint64(len(got)) != n-st.Dropped+st.Duplicated {
				return "wrong number of frames"
			}
			return ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rx, tx, f := pass(t, FaultConfig{Seed: 17, Rx: c.rates, Tx: c.rates, Batches: 3}, n)
			rst, tst := f.FaultStats()
			if msg := c.check(rx, rst); msg != "" {
				t.Errorf("rx: %s: %d frames, %+v", msg, len(rx), rst)
			}
			if msg := c.check(tx, tst); msg != "" {
				t.Errorf("tx: %s: %d frames, %+v", msg, len(tx), tst)
			}
		})
	}
}

func TestFaultsRepeatWithSeed(t *testing.T) {
	cfg := FaultConfig{Seed: 4, Rx: Rates{0.1, 0.1, 0, 0.2}, Tx: Rates{0.1, 0.1, 0, 0.2}}
	rx1, tx1, _ := pass(t, cfg, 100)
	rx2, tx2, _ := pass(t, cfg, 100)
	cfg.Seed = 5
	rx3, _, _ := pass(t, cfg, 100)
	if !slices.Equal(rx1, rx2) || !slices.Equal(tx1, tx2) {
		t.Error("one seed, two results")
	}
	if slices.Equal(rx1, rx3) {
		t.Error("two seeds, one result")
	}
}

func TestCorruptChangesOneOctet(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 64, TxSlots: 8, TxSlot: 2}, FakeConfig{})
	f := NewFault(s, FaultConfig{Seed: 3, Rx: Rates{Corrupt: 1}, Tx: Rates{Corrupt: 1}})
	differ := func(what string, got, want []byte) {
		t.Helper()
		n := 0
		for i := range want {
			if got[i] != want[i] {
				n++
				if i < ethHeader {
					t.Errorf("%s: Ethernet header octet %d was changed", what, i)
				}
			}
		}
		if len(got) != len(want) || n != 1 {
			t.Errorf("%s: %d octets of %d differ, want 1", what, n, len(want))
		}
	}
	for _, n := range []int{15, 60, 1514, RxChunkData + 1, 8000} {
		want := newFrame(n, 1)
		k.Inject(want)
		var batch [2]Packet
		if f.Recv(batch[:]) != 1 {
			t.Fatal("not received")
		}
		differ(fmt.Sprintf("rx %d", n), batch[0].AppendTo(nil), want)
		f.Release(&batch[0])
		f.Refill()
		transmit(t, f, want)
		f.Flush()
		got, _ := k.Take(nil)
		differ(fmt.Sprintf("tx %d", n), got, want)
		f.Reap()
	}
}

// A Port over a Fault over a Fault: each takes back its own copies.
func TestNestedFaults(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 16, TxSlots: 4}, FakeConfig{})
	inner := NewFault(s, FaultConfig{Seed: 1, Rx: Rates{Duplicate: 1}})
	outer := NewFault(inner, FaultConfig{Seed: 2, Rx: Rates{Duplicate: 1}})
	f := newFrame(5000, 1)
	for range 5 {
		k.Inject(f)
		batch := make([]Packet, 8)
		n := outer.Recv(batch)
		n += outer.Recv(batch[n:])
		if n != 4 {
			t.Fatalf("received %d packets, want 4", n)
		}
		if c := s.Census(); c[OwnerRx] != 2 {
			t.Errorf("%v, want 2 chunks with the reader", c)
		}
		for i := range batch[:n] {
			if !bytes.Equal(batch[i].AppendTo(nil), f) {
				t.Errorf("copy %d differs", i)
			}
			outer.Release(&batch[i])
		}
		outer.Refill()
		audit(t, outer, k)
	}
	if c := s.Census(); c[OwnerFill] != 16 {
		t.Errorf("%v", c)
	}
	if len(inner.spare) != 1 || len(outer.spare) != 2 {
		t.Errorf("copies kept: %d and %d, want 1 and 2", len(inner.spare), len(outer.spare))
	}
}

func TestWaitDoesNotSleepOverDelayed(t *testing.T) {
	s, k := fake(t, small, FakeConfig{})
	f := NewFault(s, FaultConfig{Rx: Rates{Delay: 1}})
	k.Inject(newFrame(60, 1))
	var batch [1]Packet
	if f.Recv(batch[:]) != 0 || f.Wait(-1, -1)&ReadyRx == 0 {
		t.Error("Wait would sleep over a delayed packet")
	}
	for range 2 {
		if f.Recv(batch[:]) == 1 {
			f.Release(&batch[0])
			return
		}
	}
	t.Error("delayed packet never came")
}
