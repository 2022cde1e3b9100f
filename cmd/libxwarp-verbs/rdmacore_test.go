package libxwarpverbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// python is the Python of Debian, for which pyverbs is built.
const python = "/usr/bin/python3"

// script copies a file of testdata to a place where any user can read it.
func script(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(scratch(t), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFork runs a program that forks after it registered memory. Parent and child must each see what they wrote.
func TestFork(t *testing.T) {
	a, b := pair(t)
	out := a.start(t, python+" "+script(t, "fork.py")+" xwarp_eth0", b).wait(t)
	if !strings.Contains(out, "parent and child have what they wrote") {
		t.Error(out)
	}
}

// TestNeedsCM runs a program that connects queue pairs without rdma_cm: the error must say why that fails.
func TestNeedsCM(t *testing.T) {
	a, b := pair(t)
	s := b.start(t, "ib_write_bw -n 5", a)
	b.accepts(t, s, 18515)
	c := a.start(t, "ib_write_bw -n 5 @", b)
	<-c.done
	if c.err == nil || !strings.Contains(c.out.String(), "iWARP connects by rdma_cm") {
		t.Errorf("ib_write_bw without -R: %v\n%s", c.err, c.out.String())
	}
}

// inapplicable maps patterns of the names of rdma-core's tests that cannot pass to the reasons.
var inapplicable = map[string]string{
	`test_rdmacm_async_traffic$`: "iWARP has no timeout of acknowledgements to ask for",
	`external_qp$`:               "rdma_cm has no RDMA_CM_EVENT_CONNECT_RESPONSE for iWARP",
	`udp_traffic$`:               "iWARP has no datagrams",
	`rc_rdma_write$|rereg_access(_bad_flow)?$|mw_type[12]|rc_bind_mw$`: "a Write is complete when its memory is free again, " +
		"not when it is placed (RFC 5040, 5.3)",
	`rereg_(addr|pd)$`: "a region in use by a receive cannot be registered again",
}

// TestRDMACore runs rdma-core's Python tests. Both ends of their connections are on one host, so they run on a
// kernel-transport device. As an iWARP device they use a loopback address that no other process of these tests uses.
func TestRDMACore(t *testing.T) {
	t.Run("iwarp", func(t *testing.T) {
		a, b := pairOn(t, "kernel")
		runRDMACore(t, a, b, fmt.Sprintf("127.%d.%d.1", os.Getpid()>>8&0xff, os.Getpid()&0xff), 50)
	})
	t.Run("roce", func(t *testing.T) {
		a, b := rocePair(t, "kernel")
		runRDMACore(t, a, b, a.addr, 63)
	})
}

// runRDMACore runs the tests at an address. The test fails if one fails that is not inapplicable, or if fewer than
// least pass.
func runRDMACore(t *testing.T, a, b *end, address string, least int) {
	const tests = "/usr/share/doc/rdma-core/tests"
	if _, err := os.Stat(tests); err != nil {
		t.Fatalf("%v (python3-pyverbs has them; dpkg may be told to leave documentation out)", err)
	}
	line := fmt.Sprintf("%s %s %s xwarp_eth0 %s", python, script(t, "rdma_core.py"), tests, address)
	p := a.start(t, line, b)
	select {
	case <-p.done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("they do not end:\n%s", p.out.String())
	}
	count := map[string]int{}
	reasons := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(tests\.\S+)\t(\w+)\t(.*)$`).FindAllStringSubmatch(p.out.String(), -1) {
		name, what, why := m[1], m[2], m[3]
		if what == "failed" {
			for pattern, reason := range inapplicable {
				if regexp.MustCompile(pattern).MatchString(name) {
					what, why = "skipped", reason
				}
			}
		}
		count[what]++
		switch what {
		case "skipped":
			reasons[why]++
		case "failed":
			t.Errorf("%s: %s", name, why)
		}
	}
	t.Logf("%d passed, %d not applicable: %v", count["passed"], count["skipped"], reasons)
	if count["passed"] < least {
		t.Errorf("%d tests passed:\n%s", count["passed"], p.out.String())
	}
}
