package budget

import (
	"os"
	"path/filepath"
	"testing"

	"syscall"
)

// TestShare: if each user takes its whole share, at least min(most/2, basic/reserve) users get a share, and no user
// after the first gets more than half of the whole, most.
func TestShare(t *testing.T) {
	for _, most := range []int64{1, 2, 3, 10, 256, 512, MaxMappings, 1 << 40} {
		var taken int64
		users := 0
		for ; users < 1000; users++ {
			n := Share(most, taken)
			if n < 0 || n > most-taken || users > 0 && n > most/2 {
				t.Fatalf("user %d may have %d of %d, %d in use", users, n, most, taken)
			}
			if n == 0 {
				break
			}
			taken += n
		}
		if want := min(most/2, basic/reserve); int64(users) < want {
			t.Errorf("%d users find room in %d, want %d at least", users, most, want)
		}
	}
}

// TestNeeds: if the needs for mappings and descriptors overflow, they saturate, and do not wrap to a small number.
func TestNeeds(t *testing.T) {
	var a Amounts
	for k := range Limited {
		a[k] = 1 << 62
	}
	if n := a.Needs(); n[Mappings] < 1<<40 || n[Descriptors] < 1<<40 {
		t.Errorf("%v", n)
	}
}

// TestHostBounds checks which descriptors are kept for programs and for the operator under some limits of a process,
// and that the lowest memory limit of its control group and the groups above applies.
func TestHostBounds(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	for _, c := range []struct{ limit, programs, operator int }{
		{400, 200, 300}, {1024, 640, 896}, {4096, 2944, 3968},
	} {
		l := syscall.Rlimit{Cur: uint64(c.limit), Max: before.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
		if KeptForPrograms(c.programs-1) || !KeptForPrograms(c.programs) ||
			KeptForOperator(c.operator-1) || !KeptForOperator(c.operator) {
			t.Errorf("of %d: kept from %d on for programs, from %d on for the operator: not so",
				c.limit, c.programs, c.operator)
		}
	}
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	unbounded := groupMemory(root)
	write("proc/self/cgroup", "1:cpu:/x\n0::/a/b\n")
	write("sys/fs/cgroup/a/b/memory.max", "max\n")
	if n := groupMemory(root); n != unbounded {
		t.Errorf("%d without a bound", n)
	}
	write("sys/fs/cgroup/a/memory.max", "5000\n")
	write("sys/fs/cgroup/memory.max", "7000\n")
	if n := groupMemory(root); n != 5000 {
		t.Errorf("%d, want that of the group above", n)
	}
	if n := HostBounds()[DaemonMemory]; n <= 0 {
		t.Errorf("the memory of the host is %d", n)
	}
}
