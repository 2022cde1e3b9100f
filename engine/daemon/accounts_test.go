package daemon

import (
	"testing"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/counters"
)

// TestDefaultsFitTheirShare: a user who is alone may have what the default [limits] say, and so may a few at a time.
func TestDefaultsFitTheirShare(t *testing.T) {
	d, _ := daemonOn(t)
	cfg := d.cfg.Load()
	l := cfg.Limits
	full := l.Amounts()
	full[budget.DaemonMemory], full[budget.Descriptors] = 0, 0 // as the host has it
	for uid := range uint32(3) {
		if _, err := d.users.Enter(budget.Holder{UID: 1000 + uid}, &l, full); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// TestDaemonTables has every counter of the daemon in its table and in snapshots, and a key in [limits] for each kind
// of what programs can have too much of.
func TestDaemonTables(t *testing.T) {
	d, _ := daemonOn(t)
	s := d.Snapshot()
	for i := range counters.Daemon {
		if _, ok := s.Counters[counters.Daemon[i].Key]; !ok {
			t.Errorf("a snapshot has no %s", counters.Daemon[i].Key)
		}
	}
	if len(s.Counters) != len(counters.Daemon) {
		t.Errorf("the snapshot counts %v", s.Counters)
	}
	for k := range budget.Limited {
		if n := d.cfg.Load().Limits.Of(k); n <= 0 {
			t.Errorf("the limit of %v is %d", k, n)
		}
	}
}
