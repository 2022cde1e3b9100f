package ring

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"negative device", Config{Ifindex: -1}, "Ifindex -1"},
		{"slot too long", Config{TxSlot: 17}, "TxSlot 17"},
		{"too much memory", Config{RxFrames: MaxFrames}, "chunks, at most 524288"},
		{"overflow", Config{TxSlots: 1 << 31, TxSlot: 2}, "at most 524288"},
		{"frags", Config{MaxFrags: 19}, "MaxFrags 19"},
		{"frags over chunks", Config{RxFrames: 4, MaxFrags: 5}, "RxFrames 4 cannot hold"},
		{"odd ring", Config{FillSize: 100}, "FillSize 100 is not a power of two"},
		{"huge ring", Config{RxSize: 1 << 21}, "RxSize 2097152"},
		{"completion ring", Config{TxSlots: 64, TxSlot: 3, CompSize: 128},
			"CompSize 128 is less than the 192"},
		{"transmit ring", Config{TxSlot: 3, TxSize: 2}, "TxSize 2 is less than the 3"},
		{"budget", Config{KickBudget: 257}, "KickBudget 257"},
		{"kicks", Config{Kicks: 65}, "Kicks 65"},
		{"mode", Config{Mode: 3}, "unknown mode"},
		{"bind", Config{BindTimeout: -1}, "BindTimeout"},
	} {
		s, err := OpenFake(c.cfg, NewFakeKernel(FakeConfig{}))
		if s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		if _, err := Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Open: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	c, err := Config{TxSlot: SlotFor(9014)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.TxSlot != 3 || c.TxSize != 4096 || c.CompSize != 4096 || c.FillSize != 4096 ||
		c.RxSize != 4096 || c.Frames() != 4096+3072 {
		t.Errorf("defaults %+v", c)
	}
	for n, want := range map[int]uint32{0: 1, 1: 1, 4096: 1, 4097: 2, 8192: 2, 9014: 3, 65536: 16} {
		if got := SlotFor(n); got != want {
			t.Errorf("SlotFor(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestStateOfErrno(t *testing.T) {
	for errno, want := range map[unix.Errno]State{
		0: StateOK, unix.EAGAIN: StateAgain, unix.EINTR: StateAgain, unix.EBUSY: StateBusy,
		unix.ENOBUFS: StateNoBuffers,
		unix.ENOMEM:  StateNoBuffers, unix.ENETDOWN: StateDown, unix.ENXIO: StateGone,
		unix.ENODEV: StateGone,
		unix.EBADF:  StateClosed, unix.EIO: StateError,
	} {
		if got := stateOf(errno); got != want {
			t.Errorf("%v is %v, want %v", errno, got, want)
		}
	}
}

func TestFakeQueueIsBusyWhileOpen(t *testing.T) {
	k := NewFakeKernel(FakeConfig{})
	s, err := OpenFake(small, k)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFake(small, k); !errors.Is(err, unix.EBUSY) {
		t.Errorf("second socket on one queue: %v, want EBUSY", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, err = OpenFake(small, k)
	if err != nil {
		t.Fatalf("queue is not free after Close: %v", err)
	}
	s.Close()
}
