package libxwarpverbs_test

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// classes collects the DSCPs of the connections of e's programs until stop is called, which returns them.
func (e *end) classes() (stop func() map[int]bool) {
	seen, over := map[int]bool{}, make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			for _, q := range e.daemon.Snapshot().QPs {
				if q.Remote.IsValid() {
					seen[q.DSCP] = true
				}
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() map[int]bool {
		close(over)
		reading.Wait()
		return seen
	}
}

// TestClass runs perftest with a class of traffic, set by rdma_set_option or by the traffic class of an address vector.
// It checks the DSCP that the daemons report for the connections: the class without its lower two bits, which belong to
// ECN. TestDSCP of engine/daemon looks at the frames.
func TestClass(t *testing.T) {
	a, b := pair(t)
	for _, e := range []*end{a, b} {
		e.env = append(e.env, "XWARP_STYLE=roce")
	}
	for line, run := range map[string]func(*exchange, *testing.T, *end, *end){
		"ib_write_bw -n 5000 -R -T 105":         (*exchange).run,
		"ib_write_bw -n 5000 -x 0 --tclass=105": (*exchange).runRoCE,
	} {
		t.Run(line, func(t *testing.T) {
			client, server := a.classes(), b.classes()
			x := exchange{line, line + " @", "65536 +5000", "65536 +5000"}
			run(&x, t, a, b)
			// With -R, perftest has another connection for its parameters, and its server chooses no class.
			cm := strings.Contains(line, " -R ")
			if seen := client(); !seen[26] || !cm && len(seen) != 1 {
				t.Errorf("client: connections with DSCP %v, want 26", seen)
			}
			if seen := server(); !cm && (!seen[26] || len(seen) != 1) {
				t.Errorf("server: connections with DSCP %v, want 26", seen)
			}
		})
	}
}
