package ntuple

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/engine/testkit/card"
)

// state is the whole state of a card.
func state(f *card.Card) string {
	rules, _, err := Rules(f)
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.String(), b.String()) })
	return fmt.Sprint(rules, err, f.Contexts, f.Table, f.On)
}

func both(queues ...int) *Plan {
	return &Plan{Ports: []uint16{7174}, Listen: true, Dial: true, Queues: queues, QueueCount: 8}
}

// saved returns the result of Save as a later process reads it, after encoding and decoding.
func saved(t *testing.T, c Card, p *Plan) *Before {
	t.Helper()
	b, err := Save(c, p)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var again Before
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return &again
}

func TestSetAndUndo(t *testing.T) {
	for _, special := range []bool{false, true} {
		for _, queues := range [][]int{{5}, {4, 5, 6, 7}} {
			f, p := card.New("eth9", 8), both(queues...)
			f.Special = special
			was := state(f)
			b := saved(t, f, p)
			if state(f) != was {
				t.Fatalf("Save changed %s", state(f))
			}
			if err := Set(f, p); err != nil {
				t.Fatal(err)
			}
			rules, more, err := Rules(f)
			if err != nil || len(rules) != 4 || more != 0 {
				t.Errorf("rules %v, %d more, %v", rules, more, err)
			}
			for _, r := range rules {
				if got := leadsTo(f, r); !slices.Equal(got, queues) {
					t.Errorf("%v leads to %v", r, got)
				}
			}
			for _, q := range f.Table {
				if slices.Contains(queues, int(q)) {
					t.Errorf("the host's traffic arrives on %v", f.Table)
				}
			}
			if found, err := Look(f, p); err != nil || cmp.Diff(found, Found{}) != "" {
				t.Errorf("Look: %+v, %v", found, err)
			}
			now := state(f)
			if err := Set(f, p); err != nil || state(f) != now {
				t.Errorf("once more: %v, %s\nafter %s", err, state(f), now)
			}
			if err := Undo(f, b); err != nil || state(f) != was {
				t.Errorf("Undo: %v, %s\nwas %s", err, state(f), was)
			}
			if err := Undo(f, b); err != nil || state(f) != was {
				t.Errorf("Undo again: %v, %s", err, state(f))
			}
		}
	}
}

// TestKilled: after a process was killed in Set, at any of its commands, Undo in another process restores the state.
func TestKilled(t *testing.T) {
	for _, queues := range [][]int{{5}, {4, 5, 6, 7}} {
		done := false
		for n := 1; n < 2000 && !done; n++ {
			f, p := card.New("eth9", 8), both(queues...)
			was := state(f)
			b := saved(t, f, p)
			f.Killed = n
			done = Set(f, p) == nil
			f.Killed = 0
			if err := Undo(f, b); err != nil || state(f) != was {
				t.Fatalf("killed after %d commands: %v, %s\nwas %s", n, err, state(f), was)
			}
		}
		if !done {
			t.Error("Set never finished")
		}
	}
}

// TestRefused: if a command fails, Set leaves the card unchanged, and the error names the command as ethtool(8) writes
// it.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(f *card.Card)
		want   unix.Errno
		words  string
	}{
		{"no rules at all", func(f *card.Card) { f.Never = true }, unix.EOPNOTSUPP,
			"ethtool -n eth9: "},
		{"no TCP ports", func(f *card.Card) {
			f.Refuse = func([]byte) unix.Errno { return unix.EINVAL }
		}, unix.EINVAL, "ethtool -N eth9 flow-type tcp4 dst-port 7174 context 1: "},
		{"no source ports after destination ports", func(f *card.Card) {
			f.Refuse = func(b []byte) unix.Errno {
				if b[16+4+8] != 0 { // psrc of IPv4
					return unix.EOPNOTSUPP
				}
				return 0
			}
		}, unix.EOPNOTSUPP, "ethtool -N eth9 flow-type tcp4 src-port 7174 context 1: "},
		{"table full", func(f *card.Card) { f.Room = 3 }, unix.ENOSPC,
			"ethtool -N eth9 flow-type tcp6 src-port 7174 context 1: "},
		{"table full, locations by the driver", func(f *card.Card) { f.Room, f.Special = 3, true },
			unix.ENOSPC, "ethtool -N eth9 flow-type tcp6 src-port 7174 context 1: "},
		{"no contexts", func(f *card.Card) { f.NoContexts = true }, unix.EOPNOTSUPP,
			"ethtool -X eth9 context new (queues [4 5 6 7]): "},
	} {
		f := card.New("eth9", 8)
		c.damage(f)
		was := state(f)
		err := Set(f, both(4, 5, 6, 7))
		if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), c.words) {
			t.Errorf("%s: %v", c.name, err)
		}
		if state(f) != was {
			t.Errorf("%s leaves %s\nwas %s", c.name, state(f), was)
		}
	}
}

// TestFixedTable: a card whose RSS table cannot change still gets the rules, and Look reports the shared queues.
func TestFixedTable(t *testing.T) {
	f := card.New("eth9", 8)
	f.FixedTable = true
	if err := Set(f, both(4, 5)); err != nil {
		t.Fatal(err)
	}
	found, err := Look(f, both(4, 5))
	if err != nil || cmp.Diff(found, Found{Shared: []int{4, 5}}) != "" {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestOthers: Set and Undo keep settings that others made before Set or after it. Undo fails while others have changed
// the context that its rules use, and Set fails if a rule of another leads the same port elsewhere.
func TestOthers(t *testing.T) {
	f, p := card.New("eth9", 8), both(4, 5)
	f.On = true
	theirs := Rule{DstPort: 22, Queue: 1}
	if err := insert(f, theirs); err != nil {
		t.Fatal(err)
	}
	was := state(f)
	b := saved(t, f, p)
	if err := Set(f, p); err != nil {
		t.Fatal(err)
	}
	f.Table[0] = 7
	ours := f.Contexts[1]
	f.Contexts[1] = []uint32{0, 1}
	if err := Undo(f, b); err == nil || strings.Count(err.Error(), "ethtool -N eth9 delete ") != 4 {
		t.Errorf("rules that were changed since: %v", err)
	}
	f.Contexts[1] = ours
	if err := Undo(f, b); err != nil {
		t.Fatal(err)
	}
	if f.Table[0] != 7 || !f.On {
		t.Errorf("Undo changed settings of others: %s", state(f))
	}
	f.Reset()
	if state(f) != was {
		t.Errorf("%s\nwas %s", state(f), was)
	}
	if err := insert(f, Rule{DstPort: 7174, Queue: 2}); err != nil {
		t.Fatal(err)
	}
	found, err := Look(f, p)
	if err != nil || found.Other == nil || found.Other.String() !=
		"flow-type tcp4 dst-port 7174 action 2" {
		t.Errorf("%+v, %v", found, err)
	}
	was = state(f)
	if err := Set(f, p); !errors.Is(err, unix.EEXIST) || state(f) != was {
		t.Errorf("%v: %s\nwas %s", err, state(f), was)
	}
}
