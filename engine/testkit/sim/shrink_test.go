package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"xwarp/bench/relay/impair"
	"xwarp/ddp/rdmap"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// features returns the set of the features in a comma-separated list.
func features(list string) map[string]bool {
	set := map[string]bool{}
	for _, f := range strings.Split(list, ",") {
		set[f] = true
	}
	return set
}

// smallest reduces a failing scenario: it leaves out features one by one as long as the scenario still fails.
// Connections, and the second halves of programs and of faults, count as features. test replays the result. The
// scenario of a failure that was seen maxOfKind times is not reduced.
func smallest(test string, s *scenario, err error,
	draw func(left map[string]bool) *scenario) error {
	if err == nil {
		return nil
	}
	if seenFailures.add(err) > maxOfKind {
		return fmt.Errorf("seed %d: %w: %w", s.seed, errSeen, err)
	}
	small, err := shrink(s, err, func(left map[string]bool) (*scenario, error) {
		s := draw(left)
		return s, s.guard()
	})
	return fmt.Errorf("seed %d: %w\n  scenario: %v\n  go test ./engine/testkit/sim -run '%s$' "+
		"-seed %d -without '%s' -frames", s.seed, err, small, test, s.seed,
		strings.Join(without(small), ","))
}

// maxOfKind is how many failures of one kind are reduced and reported. Others are only counted, so that a frequent
// failure, or a fault of the simulator, does not hide a rare one.
const maxOfKind = 4

var errSeen = errors.New("a failure of a kind that was reported before")

// seenFailures counts the failures of a test by kind.
var seenFailures = failureKinds{n: map[string]int{}}

type failureKinds struct {
	mu sync.Mutex
	n  map[string]int
}

// reset forgets the failures of earlier tests.
func (k *failureKinds) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n = map[string]int{}
}

// add counts err and returns how many of its kind there are.
func (k *failureKinds) add(err error) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := kindOf(err)
	k.n[kind]++
	return k.n[kind]
}

// kindOf returns the first line of err without its numbers, which differ between seeds.
func kindOf(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, line)
}

func without(s *scenario) (list []string) {
	for f := range s.left {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}

// shorter returns d, the duration of the faults, or half of it if their second half is left out.
func (s *scenario) shorter(d tick.Duration) tick.Duration {
	if s.off("second half of the faults") {
		return d / 2
	}
	return d
}

// fewer returns how often programs are halved: once for each of their last parts that is left out.
func (s *scenario) fewer() (n int) {
	for _, part := range []string{"half", "quarter", "eighth"} {
		if !s.off("second " + part + " of the operations") {
			break
		}
		n++
	}
	return n
}

// halve removes the second half of e's program, and the receives for it. The first operation stays.
func (e *rdmaEnd) halve() {
	if len(e.ops) < 2 {
		return
	}
	for i := range e.ops[len(e.ops)/2:] {
		if r := e.ops[len(e.ops)/2+i].recv; r >= 0 && r < len(e.peer.recvs) {
			e.peer.recvs = e.peer.recvs[:r]
		}
	}
	e.ops = e.ops[:len(e.ops)/2]
	e.ops[len(e.ops)-1].wr.Flags |= rdmap.Signaled // otherwise the peer does not notice the end
}

// maxShrink limits the number of runs of shrink.
const maxShrink = 200

// shrink leaves out features of s until none can be left out without success, or after maxShrink runs. It returns the
// last scenario that failed, and its error. run creates and runs the scenario without some features.
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

// TestShrink makes a scenario fail if it has one feature. Of the removable features, only that one must remain.
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
		remain := slices.DeleteFunc(slices.Clone(small.tried), func(f string) bool {
			return small.left[f] || f == "loss"
		})
		if err != broken || len(small.loads) != 1 || small.left["loss"] || len(remain) != 1 {
			t.Errorf("seed %d: %d connections are left, %v, without %v", seed, len(small.loads),
				err, without(small))
		}
		return
	}
	t.Fatal("no seed has the feature of this test")
}

// TestShrinkDefect plants a defect: retransmissions have one different byte. The reduced scenario must have fewer
// connections, shorter programs and few of the faults.
func TestShrinkDefect(t *testing.T) {
	type sent struct {
		port uint16
		at   seq.Num
	}
	broken := func(left map[string]bool) *scenario {
		s := drawWide(3, left)
		see, seen := s.world.Tap, map[sent]bool{}
		s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
			if at, th := tcpOf(frame); d == Out && at >= 0 && len(frame) > at+40 {
				if k := (sent{th.SrcPort, th.Seq}); seen[k] {
					frame = bytes.Clone(frame)
					frame[len(frame)-1] ^= 1
					repair(frame, false)
				} else {
					seen[k] = true
				}
			}
			see(h, d, frame, now)
		}
		return s
	}
	seenFailures.reset()
	s := broken(nil)
	err := s.guard()
	if len(s.loads) < 2 {
		t.Fatalf("%d connections: this scenario is too small to shrink", len(s.loads))
	}
	var small *scenario
	err = smallest("TestWideSeed", s, err, func(left map[string]bool) *scenario {
		small = broken(left)
		return small
	})
	if err == nil || !strings.Contains(err.Error(), "are others when sent again") {
		t.Fatalf("the defect showed as %v", err)
	}
	_, list, _ := strings.Cut(err.Error(), "-without '")
	list, _, _ = strings.Cut(list, "'")
	small = broken(features(list))
	if small.guard() == nil {
		t.Fatalf("without %s it does not fail", list)
	}
	n, before := 0, 0
	for _, c := range small.wide.conns {
		n += len(c.a.ops) + len(c.b.ops)
	}
	for _, c := range s.wide.conns {
		before += len(c.a.ops) + len(c.b.ops)
	}
	kinds := len(slices.Compact(slices.Sorted(slices.Values(small.tried))))
	if len(small.loads) >= len(s.loads) || n >= before || 2*len(small.left) < kinds {
		t.Errorf("%d connections, %d of %d operations, without %s of %v", len(small.loads), n,
			before, list, small.tried)
	}
	t.Logf("%d of %d connections, %d of %d operations", len(small.loads), len(s.loads), n, before)
}

// TestEachFailureIsCounted: of many failures of one kind, only maxOfKind are reduced and shown. One of another kind
// among them is shown too.
func TestEachFailureIsCounted(t *testing.T) {
	seenFailures.reset()
	shown, draws := 0, 0
	for seed := range uint64(3 * maxOfKind) {
		err := fmt.Errorf("seed %d has %d of %d slots", seed, seed, 2*seed)
		if seed == 2*maxOfKind {
			err = errors.New("a rare one")
		}
		s := &scenario{seed: seed, tried: []string{"a feature"}}
		draw := func(map[string]bool) *scenario {
			draws++
			return quietScenario(t, seed, 1500, impair.Config{})
		}
		if e := smallest("TestX", s, err, draw); !errors.Is(e, errSeen) {
			shown++
		}
	}
	if shown != maxOfKind+1 || draws != shown {
		t.Errorf("%d failures were shown with %d runs, want %d", shown, draws, maxOfKind+1)
	}
}
