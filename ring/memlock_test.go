package ring

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dropCaps permanently drops capabilities of the calling thread.
func dropCaps(caps ...int) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return err
	}
	for _, c := range caps {
		d[c/32].Effective &^= 1 << (c % 32)
	}
	return unix.Capset(&h, &d[0])
}

// TestMemlockLimit: without CAP_IPC_LOCK, Open raises the soft limit to the hard limit. If that is too low, the error
// says what to do.
func TestMemlockLimit(t *testing.T) {
	a, _ := newPair(t, 9000) // with chunks of 4,096 bytes
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	hard := min(old.Max, 1<<40)
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 4 << chunkShift,
		Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
			t.Error(err)
		}
	}()
	a.in(t, func() error {
		if err := dropCaps(unix.CAP_IPC_LOCK, unix.CAP_SYS_RESOURCE); err != nil {
			return err
		}
		s, err := Open(Config{Ifindex: a.index, RxFrames: 64, TxSlots: 64})
		if err != nil {
			t.Error("the soft limit was not raised:", err)
		} else {
			s.Close()
		}
		if frames := hard >> chunkShift; frames < MaxFrames/2 {
			_, err = Open(Config{Ifindex: a.index, RxFrames: uint32(frames) + 1, TxSlots: 64})
			if err == nil || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK is too low") {
				t.Errorf("UMEM above the hard limit: %v", err)
			}
		}
		return nil
	})
}
