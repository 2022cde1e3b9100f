package counters_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/engine/transfer"
	"xwarp/engine/xdp"
	"xwarp/mpa"
	"xwarp/ring"
	"xwarp/tcp"
)

// Every counter of an object is in its table, and every table entry is an existing counter. All have a unit and a help
// text. The names of those that are metrics end in _total, and contain _bytes exactly if the unit is bytes.
func TestTablesAreComplete(t *testing.T) {
	for name, c := range map[string]struct {
		table counters.Table
		keys  counters.Values
	}{
		"stack":       {counters.Stack, control.Counters(stack.Stats{})},
		"listen":      {counters.Listen, control.Counters(tcp.ListenCounters{})},
		"ring":        {counters.Ring, control.Counters(ring.Stats{})},
		"contained":   {counters.Contained, control.Counters(core.Contained{})},
		"transfer":    {counters.Transfer, control.Counters(&transfer.Stats{})},
		"watch":       {counters.Watch, control.Counters(netwatch.Counters{})},
		"link":        {counters.Link, control.Counters(xdp.LinkCounters{})},
		"ipsec":       {counters.IPsec, control.Counters(xdp.IPsecStats{})},
		"port_mapper": {counters.PortMap, control.Counters(portmapper.Counters{})},
		"rdma":        {counters.RDMA, control.Counters(rdmap.Counters{})},
		"mpa":         {counters.MPA, control.Counters(mpa.ReceiverCounters{})},
		"tcp":         {counters.TCP, control.Counters(tcp.AllCounters{})},
	} {
		for i := range c.table {
			e := &c.table[i]
			if _, ok := c.keys[e.Key]; !ok {
				t.Errorf("%s: unknown counter %q", name, e.Key)
			}
			delete(c.keys, e.Key)
			checkWords(t, name, e)
		}
		if len(c.keys) > 0 {
			t.Errorf("%s: not in the table: %v", name, slices.Sorted(maps.Keys(c.keys)))
		}
	}
}

var units = []string{"bytes", "frames", "packets", "segments", "FPDUs", "messages", "connections",
	"events"}

func checkWords(t *testing.T, table string, c *counters.Counter) {
	t.Helper()
	if !slices.Contains(units, c.Unit) || !strings.HasSuffix(c.Meaning, ".") {
		t.Errorf("%s: %s has unit %q and meaning %q", table, c.Key, c.Unit, c.Meaning)
	}
	bytes := c.Unit == "bytes"
	if c.Metric != "" && bytes != strings.Contains(c.Metric, "_bytes") {
		t.Errorf("%s: %s counts %s, and is called %s", table, c.Key, c.Unit, c.Metric)
	}
	if c.Metric != "" && !strings.HasSuffix(c.Metric, "_total") {
		t.Errorf("%s: %s is called %s", table, c.Key, c.Metric)
	}
	if (c.Cause != "") != (counters.Help[c.Metric] != "") {
		t.Errorf("%s: %s has the cause %q in %s", table, c.Key, c.Cause, c.Metric)
	}
}
