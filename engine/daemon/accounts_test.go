package daemon

import (
	"strings"
	"testing"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/counters"
)

// Users who keep to their limits do not take all the mappings that the process can have: its heap needs some.
func TestMappingsOfAll(t *testing.T) {
	var all accounts
	one := mrCost(1)
	const each = 1000
	var err error
	n := 0
	for ; err == nil; n++ {
		err = all.open(holder{uid: uint32(n / each)}).take(nil, one)
	}
	if n--; n != budget.MaxMappings || !strings.Contains(err.Error(), "xwarp resource show user") {
		t.Errorf("%d mappings, then %v", n, err)
	}
	for _, k := range []budget.Amounts{sessionCost, {budget.CQs: 1}, {budget.QPs: 1}} {
		if err := all.open(holder{uid: 1 << 20}).take(nil, k); err == nil {
			t.Errorf("%v is taken", k)
		}
	}
	if err := all.open(holder{uid: 1 << 20}).take(nil, pdCost); err != nil {
		t.Errorf("a domain maps nothing: %v", err)
	}
	all.open(holder{}).give(one)
	if err := all.open(holder{uid: 1 << 20}).take(nil, sessionCost); err != nil {
		t.Errorf("in place of a region that is gone: %v", err)
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
	for k := range budget.Kinds {
		if n := limitOf(&d.cfg.Load().Limits, k); n <= 0 {
			t.Errorf("the limit of %v is %d", k, n)
		}
	}
}
