package daemon

import (
	"slices"
	"testing"

	"xwarp/engine/daemon/config"
)

// TestPendingKeys: a changed key that needs a restart stays pending over further reloads, until the file has the value
// again with which the daemon started.
func TestPendingKeys(t *testing.T) {
	d, _ := daemonFor(t, "", "")
	started := d.cfg.Load()
	reload := func(change func(*config.Loaded)) []string {
		t.Helper()
		now := *started
		now.Config.Interface = slices.Clone(started.Interface)
		change(&now)
		restart, err := d.apply(&now)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Snapshot().Pending; !slices.Equal(got, restart) {
			t.Errorf("the status shows %v, the reload says %v", got, restart)
		}
		return restart
	}
	change := func(c *config.Loaded) { c.Daemon.Socket += "x" }
	for i := range 2 {
		if got := reload(change); !slices.Equal(got, []string{"daemon.socket"}) {
			t.Errorf("reload %d says %v", i+1, got)
		}
	}
	if got := reload(func(*config.Loaded) {}); len(got) != 0 {
		t.Errorf("with the first value again: %v", got)
	}
}
