package script_test

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/testkit/script"
)

const differences = "testdata/linux-differences.golden"

func load(t *testing.T) []script.Script {
	t.Helper()
	all, err := script.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func golden(t *testing.T) (string, map[string]script.Difference) {
	t.Helper()
	b, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	kernel, d, err := script.ParseDifferences(string(b))
	if err != nil {
		t.Fatalf("%s: %v", differences, err)
	}
	return kernel, d
}

// TestOurs runs every script against the engine's stack.
func TestOurs(t *testing.T) {
	all := load(t)
	if len(all) < 150 {
		t.Errorf("%d scripts, fewer than 150", len(all))
	}
	for i := range all {
		s := &all[i]
		t.Run(s.Name, func(t *testing.T) {
			if err := script.RunOurs(s); err != nil {
				t.Errorf("%v\n%s", err, s.Title)
			}
		})
	}
}

var (
	only    = flag.String("script", "", "run only this script against the kernel")
	workers = flag.Int("kernels", 24, "namespaces in which scripts run at the same time")
)

// attempts is how often a script may run against the kernel again if its result is not as listed: the clock is real,
// and this machine may be busy.
const attempts = 5

// TestLinux runs every script against the kernel of this host, as a reference. The golden file must list each
// difference, with the reason. On another release than the one that the file names, a different result is only logged,
// unless more than a tenth of the scripts have one.
func TestLinux(t *testing.T) {
	needs.NetNS(t)
	needs.TCPInfo(t)
	kernel, known := golden(t)
	var todo []*script.Script
	all := load(t)
	for i := range all {
		s := &all[i]
		d, listed := known[s.Name]
		if s.OursOnly() != (listed && d.Step == "") {
			t.Errorf("%s: scripts for ours only, and no others, are listed as not run", s.Name)
		}
		if !s.OursOnly() && (*only == "" || *only == s.Name) {
			todo = append(todo, s)
		}
	}
	for name := range known {
		if !slices.ContainsFunc(all, func(s script.Script) bool { return s.Name == name }) {
			t.Errorf("%s lists %s, which is no script", differences, name)
		}
	}
	results := runAll(t, todo)
	differ, unlisted := 0, 0
	complain := t.Errorf
	if !strings.HasPrefix(bpf.Release(), kernel+".") {
		t.Logf("the differences were recorded on Linux %s, this is %s: others are only logged",
			kernel, bpf.Release())
		complain = t.Logf
	}
	for i, s := range todo {
		if results[i] != nil {
			differ++
		}
		if !judge(complain, s, known[s.Name].Step, results[i]) {
			unlisted++
		}
	}
	if unlisted > len(todo)/10 {
		t.Errorf("%d of %d scripts are not as listed: more than another release explains", unlisted,
			len(todo))
	}
	t.Logf("Linux %s: %d scripts, %d as written, %d differ", bpf.Release(), len(todo),
		len(todo)-differ, differ)
}

// judge reports whether a result is the one in the golden file, whose step is want. If not, it complains.
func judge(complain func(string, ...any), s *script.Script, want string, err error) bool {
	switch {
	case settled(err, want):
		return true
	case err == nil:
		complain("%s: the kernel does as the script says, so take it out of %s", s.Name,
			differences)
	default:
		complain("%v\n%s\nnot as listed: %q", err, s.Title, want)
	}
	return false
}

// settled reports whether a result is the one in the golden file.
func settled(err error, want string) bool {
	var f *script.Failure
	return err == nil && want == "" || errors.As(err, &f) && f.Step == want
}

// runAll distributes the scripts over namespaces. Scripts whose result is not as listed run again, in few namespaces at
// a time, in case this test itself kept the machine busy.
func runAll(t *testing.T, todo []*script.Script) []error {
	_, known := golden(t)
	results := make([]error, len(todo))
	each := func(workers, attempts int, which []int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range min(workers, len(which)) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				k, err := script.OpenKernel() // locks the thread, which ends in its namespace
				if err != nil {
					t.Error(err)
					return
				}
				defer k.Close()
				for n := 1; ; n += attempts {
					w := int(next.Add(1)) - 1
					if w >= len(which) {
						return
					}
					i := which[w]
					for a := range attempts {
						if results[i] = k.Run(todo[i], n+a); settled(results[i],
							known[todo[i].Name].Step) {
							break
						}
					}
				}
			}()
		}
		wg.Wait()
	}
	var which []int
	for i := range todo {
		which = append(which, i)
	}
	each(*workers, 1, which)
	which = which[:0]
	for i, s := range todo {
		if !settled(results[i], known[s.Name].Step) {
			which = append(which, i)
		}
	}
	if len(which) > 0 {
		t.Logf("%d scripts are run again", len(which))
	}
	each(3, attempts, which)
	return results
}
