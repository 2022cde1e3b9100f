package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCounts checks that a count with a plural noun is found, and that a limit is accepted.
func TestCounts(t *testing.T) {
	for format, want := range map[string]string{
		"dropped %d segments without": "%d segments",
		"%d frames, at most %d files": "%d frames",
		"at most %d files":            "",
		"more than %d files":          "",
		"3 of %d queues":              "",
		"%d nanoseconds":              "",
		"segments %d, files":          "",
		"0x%02d files":                "",
	} {
		if got := countedPlural(format); got != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
}

func TestImports(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"xwarp/tcp", "xwarp/tcp/seq", true},
		{"xwarp/tcp", "encoding/binary", true},
		{"xwarp/tcp", "time", false},
		{"xwarp/tcp/cc", "sync/atomic", false},
		{"xwarp/tcp/ip", "net/netip", false},
		{"xwarp/tcp", "timeseries", true}, // not in the tree of package time
		{"xwarp/tcp", "xwarp/mpa", false},
		{"xwarp/tcp", "golang.org/x/sys/unix", false},
		{"xwarp/mpa", "xwarp/tcp/seq", true},
		{"xwarp/mpa", "xwarp/tcp/sequel", false},
		{"xwarp/mpa", "xwarp/tcp", false},
		{"xwarp/mpa", "xwarp/mpa/ulpdu", true},
		{"xwarp/ddp/rdmap", "xwarp/ddp", true},
		{"xwarp/ddp/rdmap", "xwarp/mpa/ulpdu", true},
		{"xwarp/ddp/rdmap", "xwarp/mpa", false},
		{"xwarp/ddp", "os", false},
		{"xwarp/ring", "golang.org/x/sys/unix", true},
		{"xwarp/ring", "xwarp/bpf", false},
		{"xwarp/ring", "github.com/google/gopacket", false},
		{"xwarp/ring/pcapng", "github.com/google/gopacket/pcapgo", false},
		{"xwarp/tcp/checksum", "golang.org/x/sys/cpu", true},
		{"xwarp/engine/xdp", "github.com/google/gopacket", false},
		{"xwarp/engine/testkit/sim", "xwarp/mpa", true},
		{"xwarp/engine/testkit/sim", "xwarp/engine/testkit/script", true},
		{"xwarp/engine/daemon", "xwarp/engine/testkit/sim", false},
		{"xwarp/bench/demo", "xwarp/engine/testkit/sim", false},
		{"xwarp/engine/internal/core", "xwarp/engine/iwarp", true},
		{"xwarp/engine/xdp", "xwarp/engine/sockets", true},
		{"xwarp/engine/internal/core", "xwarp/engine/xdp", false},
		{"xwarp/engine/internal/core", "xwarp/engine/sockets", false},
		{"xwarp/engine/sockets", "github.com/cilium/ebpf", false},
		{"xwarp/engine/sockets", "github.com/vishvananda/netlink", false},
		{"xwarp/engine/xdp", "xwarp/engine/daemon", false},
		{"xwarp/engine/stack", "xwarp/engine/sockets", false},
		{"xwarp/engine/stack", "xwarp/mpa", false},
		{"xwarp/engine/iwarp", "xwarp/engine/stack", false},
		{"xwarp/engine/overtcp", "xwarp/engine/stack", true},
		{"xwarp/engine/internal/core", "xwarp/engine/stack", false},
		{"xwarp/engine/internal/core", "github.com/vishvananda/netlink", false},
		{"xwarp/engine/iwarp", "xwarp/bpf", false},
		{"xwarp/engine/daemon/client", "xwarp/engine/daemon/control", true},
		{"xwarp/engine/daemon/client", "xwarp/engine/internal/core", false},
		{"xwarp/engine/daemon/client", "github.com/vishvananda/netlink", false},
		{"xwarp/engine/daemon", "xwarp/engine/daemon/control", true},
		{"xwarp/engine/daemon", "xwarp/engine/daemon/session", true},
		{"xwarp/engine/daemon/session", "xwarp/engine/daemon", false},
		{"xwarp/engine/daemon/session", "xwarp/engine/daemon/export", false},
		{"xwarp/engine/daemon/export", "xwarp/engine/daemon/session", false},
		{"xwarp/engine/daemon/device", "xwarp/engine/daemon/session", false},
		{"xwarp/engine/budget", "xwarp/engine/daemon/config", false},
		{"xwarp/engine/verbs", "xwarp/ddp/rdmap", true},
		{"xwarp/engine/verbs", "xwarp/engine/iwarp", false},
		{"xwarp/engine/verbs", "xwarp/ring", false},
		{"xwarp/engine/verbs", "github.com/cilium/ebpf", false},
		{"xwarp/engine/transfer", "xwarp/engine/daemon", false},
		{"xwarp/engine/elsewhere", "xwarp/tcp", false},
		{"xwarp/engine/xdp", "xwarp/bench/relay", false},
		{"xwarp/bench/demo", "xwarp/engine/xdp", true},
		{"xwarp/bench/demo", "xwarp/cmd/xwarp", false},
		{"xwarp/cmd/xwarp", "github.com/spf13/cobra", true},
		{"xwarp/engine/daemon", "github.com/prometheus/client_golang/prometheus", true},
		{"xwarp/engine/xdp", "xwarp/cmd/xwarp", false},
		{"xwarp/cmd/xwarp", "C", false},
		{"xwarp/extra", "fmt", false},
	} {
		faults := checkImports(pkg{ImportPath: c.from, Imports: []string{c.to}})
		if (len(faults) == 0) != c.allowed {
			t.Errorf("%s imports %s: %q, allowed %v", c.from, c.to, faults, c.allowed)
		}
	}
}

// TestWall checks that packages behind the wall may not link its packages at any depth, and that others may.
func TestWall(t *testing.T) {
	links := []string{"github.com/vishvananda/netlink/nl", "xwarp/engine/stack", "xwarp/bpf"}
	for from, faulty := range map[string]bool{
		"xwarp/engine/sockets": true, "xwarp/engine/iwarp": true,
		"xwarp/engine/internal/core": true, "xwarp/engine/xdp": false,
	} {
		for _, to := range links {
			faults := checkImports(pkg{ImportPath: from, Deps: []string{"fmt", to}})
			if (len(faults) == 1) != faulty {
				t.Errorf("%s links %s: %q", from, to, faults)
			}
		}
	}
}

func TestValues(t *testing.T) {
	const source = `package x
func f(a, b int, p *int) int {
	go f(1, 2, p)
	var c chan int
	c <- 1
	select {}
	return a - b + <-c + -*p
}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	p := pkg{ImportPath: "xwarp/tcp/x", Dir: dir, GoFiles: []string{"x.go"}}
	faults, err := checkValues(p)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "xwarp/tcp/x/x.go:"
	want := []string{"3: go statement", "4: channel", "5: channel send", "6: select",
		"7: channel receive"}
	for i := range want {
		want[i] = prefix + want[i] + " in a protocol package"
	}
	if !slices.Equal(faults, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(faults, "\n"), strings.Join(want, "\n"))
	}
	p.ImportPath = "xwarp/engine/xdp"
	if faults, err = checkValues(p); err != nil || len(faults) != 0 {
		t.Errorf("engine may have goroutines: %q, %v", faults, err)
	}
}

func TestWidth(t *testing.T) {
	const tab, word = "\t", "0123456789"
	long := strings.Repeat(word, 10)
	for source, want := range map[string]bool{
		tab + "x(" + long[:93] + ")":               false,
		tab + "x(" + long[:94] + ")":               true,
		"// " + long + word + word[:7]:             false,
		"// " + long + word + word[:8]:             true,
		"//req:" + long + long:                     false,
		"x := `" + long + "\n" + long + long + "`": false,
		"x := 1 // " + long:                        false,
	} {
		if got := len(wide([]byte(source))) > 0; got != want {
			t.Errorf("%q is too wide: %v, want %v", source, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"// after so many seconds":               "so many",
		"// a byte of whom":                      "whom",
		"# The state of before is kept.":         "of before",
		"msg = \"the device cannot be had\"":     "cannot be had",
		"// It can be had.":                      "can be had",
		"// waits in vain":                       "in vain",
		"// draws it Anew":                       "Anew",
		"// a fault that was mended":             "mended",
		"// faults to mend":                      "to mend",
		"// has no business here":                "has no business",
		"// leaves it as it was":                 "as it was",
		"// is made when":                        "is made when",
		"// nobody's":                            "nobody's",
		"// the number of seconds":               "",
		"// an amended list":                     "",
		"// quotes RFC 793: an octet as it was.": "",
		"application/octet-stream":               "",
	} {
		var all []string
		if want != "" {
			all = []string{fmt.Sprintf("x.go:2: avoid %q: say plainly what happens to which thing",
				want)}
		}
		if got := findIdioms("x.go", "\n"+text+"\n"); !slices.Equal(got, all) {
			t.Errorf("%q: found %q, want %q", text, got, all)
		}
	}
}

func TestLongSentences(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for text, want := range map[string]int{
		words(30) + ".":                                     0,
		words(31) + ".":                                     1,
		words(16) + "\n" + words(16) + ".":                  1,
		words(16) + ".\n" + words(16) + ".":                 0,
		words(16) + ":\n" + words(16) + ".":                 0,
		words(16) + "\n\n" + words(16) + ".":                0,
		"- " + words(16) + "\n- " + words(16) + ".":         0,
		"- " + words(16) + "\n  " + words(16) + ".":         1,
		words(29) + " `" + words(9) + "`.":                  0,
		"    " + words(40):                                  0,
		"```\n" + words(40) + "\n```\n":                     0,
		"| " + words(16) + ", " + words(16) + " |":          0,
		"| " + words(16) + " | " + words(16) + " |":         0,
		"| " + words(31) + " |":                             1,
		words(29) + " [word](" + words(9) + ").":            0,
		"This quotes RFC 5044: " + words(40) + ".\nWord.":   0,
		words(31) + ".\n\n" + words(31) + "!\n" + words(31): 3,
	} {
		if got := findLongSentences("x.md", text); len(got) != want {
			t.Errorf("%q: found %q, want %d", text, got, want)
		}
	}
	if got := findLongSentences("x.md", "# x\n\n"+words(31)); len(got) != 1 ||
		!strings.HasPrefix(got[0], "x.md:3: a sentence of 31 words") {
		t.Errorf("found %q", got)
	}
}

func TestOverloadedMethods(t *testing.T) {
	many := make([]string, maxReceivers+1)
	types := map[string][]string{"take": many, "give": many[1:], "close": many, "Close": many}
	if got := overloaded(types); len(got) != 1 ||
		!strings.HasPrefix(got[0], "method take is on 9 types") {
		t.Errorf("found %q", got)
	}
}

// TestHouse checks that this repository follows all rules.
func TestHouse(t *testing.T) {
	faults, err := lint("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
}
