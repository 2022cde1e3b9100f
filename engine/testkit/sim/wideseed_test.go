package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// runWide runs the wide scenario of a seed. When it fails, features are left out one after the other as long
// as it still does: what is left is the story to be told.
func runWide(seed uint64) error { return runWideWithout(seed, nil) }

// runWideWithout is runWide of a scenario that lacks some features from the beginning.
func runWideWithout(seed uint64, left map[string]bool) error {
	s := drawWide(seed, left)
	err := s.guard()
	if err == nil {
		return nil
	}
	small, err := shrink(s, err, func(left map[string]bool) (*scenario, error) {
		s := drawWide(seed, left)
		return s, s.guard()
	})
	return fmt.Errorf("seed %d: %w\n  scenario: %v\n  go test ./engine/testkit/sim -run "+
		"'TestWideSeed$' -seed %d -without '%s' -frames", seed, err, small, seed,
		strings.Join(without(small), ","))
}

func without(s *scenario) (list []string) {
	for f := range s.left {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}

// features is a list of features as a set.
func features(list string) map[string]bool {
	set := map[string]bool{}
	for _, f := range strings.Split(list, ",") {
		set[f] = true
	}
	return set
}

// youngFeatures are those that scenarios lacked when the seeds of TestWideSeeds failed.
const youngFeatures = "blocks of A,blocks of B,blocks of C,live frames of A,live frames of B," +
	"live frames of C,bulk"

// maxShrink bounds the runs that shrink makes.
const maxShrink = 200

// shrink returns the scenario with as few features as it takes to fail, and its error. run makes and runs it
// without some.
func shrink(s *scenario, err error, run func(left map[string]bool) (*scenario, error)) (*scenario,
	error) {
	runs := 0
	for again := true; again && runs < maxShrink; {
		again = false
		for _, f := range slices.Backward(slices.Compact(slices.Sorted(slices.Values(s.tried)))) {
			if s.left[f] || runs == maxShrink {
				continue
			}
			left := map[string]bool{f: true}
			for g := range s.left {
				left[g] = true
			}
			runs++
			if t, e := run(left); e != nil {
				s, err, again = t, e, true
			}
		}
	}
	return s, err
}

// TestWideSeed replays one wide seed, without the features of -without.
func TestWideSeed(t *testing.T) {
	seed := uint64(max(*flagSeed, 1))
	s := drawWide(seed, features(*flagWithout))
	s.trace()
	err := s.guard()
	t.Logf("seed %d: %d frames, %.3f s, hash %#x", seed, s.w.Frames(), float64(s.w.Since())/1e9,
		s.w.Hash())
	if err != nil {
		s.dump()
		t.Fatalf("%v\n%v", err, s)
	}
}

// TestWideSeeds is the part of the wide scenarios in the ordinary test run. Seeds that once crawled
// come with them. Some are run twice: every frame must be the same.
func TestWideSeeds(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 50
	}
	each(t, 1, n, runWide)
	t.Logf("transmission: %s", brief(waysSeen.read()))
	if s := waysSeen.read(); !testing.Short() && (s.Segments == 0 || s.Runs == 0 || s.Single == 0 ||
		s.Failed == 0 || s.Lost == 0) {
		t.Errorf("a way of transmission was not tried: %+v", s)
	}
	for seed, of := range map[uint64]string{
		6231:  "an FPDU that is cut elsewhere each time, and was refused until it came again the same",
		94867: "two ends whose windows shrank, and each took the other's acknowledgements for old ones",
	} {
		if err := runWideWithout(seed, features(youngFeatures)); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	for seed := uint64(1); seed <= 10; seed++ {
		a, b := drawWide(seed, nil), drawWide(seed, nil)
		if a.guard(); b.guard() != nil || a.w.Hash() != b.w.Hash() {
			t.Errorf("seed %d: hash %#x, and %#x the second time", seed, a.w.Hash(), b.w.Hash())
		}
	}
}

// TestWideSoak is for make soak: -seeds says how many.
func TestWideSoak(t *testing.T) {
	if *flagSeeds == 0 {
		t.Skip("soak only: -seeds 100000")
	}
	each(t, *flagFirst, *flagSeeds, runWide)
}

// TestShrink breaks a scenario when one feature is in it, and expects that nothing but that one is left of
// those that can go.
func TestShrink(t *testing.T) {
	for seed := uint64(1); seed < 100; seed++ {
		s := drawWide(seed, nil)
		if len(s.loads) < 3 || !slices.Contains(s.tried, "loss") {
			continue
		}
		broken := errors.New("broken")
		small, err := shrink(s, broken, func(left map[string]bool) (*scenario, error) {
			s := drawWide(seed, left)
			if len(s.loads) > 0 && !s.left["loss"] {
				return s, broken
			}
			return s, nil
		})
		if err != broken || len(small.loads) != 1 || small.left["loss"] ||
			len(small.left) != len(slices.Compact(slices.Sorted(slices.Values(s.tried))))-2 {
			t.Errorf("seed %d: %d connections are left, %v, without %v", seed, len(small.loads),
				err, without(small))
		}
		return
	}
	t.Fatal("no seed has what this test is about")
}
