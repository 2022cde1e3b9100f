package daemon

import (
	"testing"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/counters"
)

// TestDefaultsFitTheirShare: three users at the same time can each have all that the default [limits] allow, within
// their shares of the resources. Memory of the daemon and descriptors are left out: their totals depend on the host.
func TestDefaultsFitTheirShare(t *testing.T) {
	d, _ := daemonOn(t)
	cfg := d.cfg.Load()
	l := cfg.Limits
	full := l.Amounts()
	full[budget.DaemonMemory], full[budget.Descriptors] = 0, 0 // these depend on the host
	for uid := range uint32(3) {
		if _, err := d.users.Enter(budget.Holder{UID: 1000 + uid}, &l, full); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// TestDaemonTables checks that a snapshot has exactly the counters of the table counters.Daemon, and that [limits] has
// a positive default for each kind of object in budget.Limited.
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
