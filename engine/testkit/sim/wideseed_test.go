package sim

import (
	"testing"
)

// runWide runs the wide scenario of a seed.
func runWide(seed uint64) error { return runWideWithout(seed, nil) }

// runWideWithout is runWide for a scenario that lacks some features from the start.
func runWideWithout(seed uint64, left map[string]bool) error {
	s := drawWide(seed, left)
	return smallest("TestWideSeed", s, s.guard(), func(left map[string]bool) *scenario {
		return drawWide(seed, left)
	})
}

// youngFeatures are features added after the seeds of TestWideSeeds failed.
const youngFeatures = "blocks of A,blocks of B,blocks of C,bulk,watcher,retuning,other MTU,impossible sources," +
	"memory windows,other kinds,any CRC error," +
	"vanishing memory,ICMP of A,ICMP of B,ICMP of C,malformed headers of A,malformed headers of B," +
	"malformed headers of C,second queue of A,second queue of B,second queue of C,late receives,sequence numbers"

// TestWideSeed replays one wide seed, without the features of -without.
func TestWideSeed(t *testing.T) {
	drawWide(uint64(max(*flagSeed, 1)), features(*flagWithout)).replay(t)
}

// TestWideSeeds runs the wide scenarios of the ordinary test run, including seeds that once stalled. Some run twice:
// every frame must be the same.
func TestWideSeeds(t *testing.T) {
	n := 250
	if testing.Short() {
		n = 50
	}
	each(t, 1, n, runWide)
	t.Logf("transmission: %s", brief(waysSeen.read()))
	if s := waysSeen.read(); !testing.Short() && (s.Segments == 0 || s.Relayed == 0) {
		t.Errorf("a way of transmission was not tried: %+v", s)
	}
	late, refused := lateSeen.inTime.Load(), lateSeen.refused.Load()
	t.Logf("receives posted late: in time %d times, too late %d times", late, refused)
	if !testing.Short() && (late == 0 || refused == 0) {
		t.Error("not both")
	}
	half, zero := wrapSeen.half.Load(), wrapSeen.whole.Load()
	t.Logf("sequence numbers passed 2^31 %d times and 0 %d times", half, zero)
	if !testing.Short() && (half == 0 || zero == 0) {
		t.Error("not both")
	}
	for seed, of := range map[uint64]string{
		6231:  "an FPDU that is cut elsewhere each time",
		94867: "two ends whose windows shrank, and each took the other's acknowledgements for old ones",
	} {
		if err := runWideWithout(seed, features(youngFeatures)); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	for seed, of := range map[uint64]string{
		6047702: "a peer that delays acknowledgements as long as the timer waits",
		8017667: "a half-open connection after a reboot, whose SYN-ACK found no slot",
		// Receivers used to refuse the first piece of a cut FPDU.
		94003235: "the first FPDU of a connection in two pieces, and a FIN behind it",
		94017125: "an FPDU in two pieces after a black hole, and a timeout of 12.8 s to send it again",
	} {
		if err := runWide(seed); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	for seed := uint64(1); seed <= 10; seed++ {
		a, b := drawWide(seed, nil), drawWide(seed, nil)
		if a.guard(); b.guard() != nil || a.world.Hash() != b.world.Hash() {
			t.Errorf("seed %d: hash %#x, and %#x the second time", seed, a.world.Hash(),
				b.world.Hash())
		}
	}
}

// TestWideSoak runs for make soak. -seeds sets the number of seeds.
func TestWideSoak(t *testing.T) {
	if *flagSeeds == 0 {
		t.Skip("soak only: -seeds 100000")
	}
	each(t, *flagFirst, *flagSeeds, runWide)
}
