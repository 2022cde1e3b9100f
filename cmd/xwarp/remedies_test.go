package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
)

// tried maps the beginning of a command in a remedy to the command line that the test runs on a host with a daemon; ""
// means the beginning itself. The longest matching beginning applies. spare0 is an interface that nothing uses.
var tried = map[string]string{
	"dmesg | tail":                    "",
	"ethtool -K":                      "ethtool -K spare0 tx off gro on gro off rxvlan off",
	"ethtool -L":                      "ethtool -L spare0 rx 2 tx 2",
	"ethtool -S":                      "ethtool -S eth0",
	"ethtool -l":                      "ethtool -l spare0",
	"free memory of the host: free":   "free -m",
	"ip -br":                          "ip -br addr; ip -br link",
	"ip -s link":                      "",
	"ip addr add":                     "ip addr add 198.51.100.1/24 dev spare0",
	"ip addr":                         "",
	"ip link del":                     "ip link add spare2 type veth && ip link del spare2",
	"ip link set %s %s off":           "ip link set spare0 xdpgeneric off",
	"ip link set %s mtu":              "ip link set spare0 mtu 1400",
	"ip link set %s up":               "ip link set spare0 up",
	"ip link set DEVICE mtu":          "ip link set spare0 mtu 1500",
	"ip link set DEVICE up":           "ip link set spare0 up",
	"ip link set NAME xdpdrv off":     "ip link set spare0 xdpdrv off",
	"ip link set NAME xdpgeneric off": "ip link set spare0 xdpgeneric off",
	"ip link set dev %s %s off":       "ip link set dev spare0 xdpdrv off",
	"ip link set lo up":               "",
	"ip link set mtu 1500":            "ip link set spare0 mtu 1500",
	"ip link show":                    "",
	"ip link":                         "",
	"ip neigh show":                   "ip neigh show; ip neigh show 192.0.2.2",
	"ip route get":                    "ip route get 192.0.2.2",
	"ip xfrm policy list dir in":      "",
	"ip xfrm policy":                  "",
	"ip xfrm state":                   "",
	"lscpu -e":                        "lscpu -e",
	"ping -M do":                      "ping -c 1 -M do -s 1472 192.0.2.2",
	"ss -ltn":                         "",
	"ss -tanp":                        "ss -tanp 'sport = :7174'",
	"ss -ti":                          "",
	"ss -tlnp":                        "ss -tlnp sport = :4791",
	"sysctl -w net.ipv4.ip_local_reserved_ports": "sysctl -w " +
		"net.ipv4.ip_local_reserved_ports=7174",
	"sysctl fs.file-max":              "",
	"sysctl vm.nr_hugepages":          "sysctl vm.nr_hugepages",
	"ulimit -n":                       "",
	"xwarp config check":              "xwarp config check $XWARP_FILE",
	"xwarp config default":            "xwarp config default",
	"xwarp confirm":                   "xwarp confirm",
	"xwarp doctor --interface":        "xwarp doctor --interface eth0 --only memlock",
	"xwarp explain 2/0/4":             "",
	"xwarp explain RETRY_EXC_ERR":     "",
	"xwarp explain RNR_RETRY_EXC_ERR": "",
	"xwarp explain":                   "xwarp explain --list",
	"xwarp resource show": "xwarp resource show peer; xwarp resource show session; " +
		"xwarp resource show user; xwarp resource show qp",
	"xwarp statistic show": "xwarp statistic show -j",
	"xwarp status":         "xwarp status",
}

// untried maps the beginnings of the other commands, and of phrases that look like commands, to the reason why the test
// does not run them.
var untried = map[string]string{
	"bpftool":                "not installed for tests; doctor prints its result",
	"ethtool -G":             "veth has no rings",
	"ethtool -L %s combined": "for drivers with combined channels, which veth lacks",
	"ethtool -L":             "as ethtool -L %s rx",
	"ethtool -N":             "veth has no n-tuple rules",
	"ethtool -X":             "veth has no RSS table",
	"ethtool -n":             "as ethtool -N",
	"free ":                  "prose",
	"groupadd":               "changes the users of this machine",
	"ip link set it up":      "prose",
	"ip link set":            "the link names its interface",
	"journalctl":             "needs systemd",
	"modprobe":               "no modules here",
	"nft list":               "its chain is that of the host",
	"sudo":                   "tested without sudo, as root",
	"swanctl":                "needs an IKE daemon: make lab",
	"systemctl":              "needs systemd",
	"ulimit -l":              "root ignores this limit",
	"xwarp bench":            "the table of bench",
	"xwarp capture":          "runs until Ctrl-C; capture.txtar runs it",
	"xwarp config show":      "config.txtar",
	"xwarp cp":               "TestCopyPairings",
	"xwarp demo":             "demo.txtar",
	"xwarp dev show":         "TestInterfaceNames",
	"xwarp doctor":           "doctor.txtar and the tests of package doctor",
	"xwarp link show":        "TestInterfaceNames",
	"xwarp monitor":          "watch.txtar",
	"xwarp reload":           "TestReload in engine/daemon; this daemon has no file to read",
	"xwarp run":              "prose",
	"xwarp serve":            "transfer tests",
	"xwarp top":              "watch.txtar",
	"xwarp version":          "TestOutputErrors",
}

// commandText matches a command in a text: at its beginning, or after punctuation and words that introduce one.
var commandText = regexp.MustCompile("(?:^|[;:(,`] ?|\\bor |\\bthen |\\bsee |next: )" +
	"((?:xwarp|ip|ethtool|systemctl|ss|ping|lscpu|dmesg|swanctl|sysctl|ulimit|free|modprobe|groupadd|journalctl|bpftool|sudo|nft) [^;,\"()`\n]*)")

// commandsOf returns the commands that explain, doctor, errors and log messages name.
func commandsOf(t *testing.T) (list []string) {
	t.Helper()
	add := func(text string) {
		for _, m := range commandText.FindAllStringSubmatch(text, -1) {
			if words := strings.Fields(m[1]); words[0] == "xwarp" && (len(words) == 1 ||
				!slices.ContainsFunc(newRoot().Commands(), func(c *cobra.Command) bool {
					return c.Name() == words[1]
				})) {
				continue // prose about xwarp
			}
			list = append(list, strings.TrimRight(strings.TrimSpace(m[1]), "."))
		}
	}
	files, _ := filepath.Glob("explain/texts/*.toml")
	for _, f := range files {
		var texts struct{ Entry []struct{ Remedy []string } }
		if _, err := toml.DecodeFile(f, &texts); err != nil {
			t.Fatal(err)
		}
		for _, e := range texts.Entry {
			for _, r := range e.Remedy {
				add(r)
			}
		}
	}
	joined, literal := regexp.MustCompile(`"\s*\+\s*"`), regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
	comment := regexp.MustCompile(`(?m)^\s*//.*$`)
	for _, root := range []string{"../../engine", "..", "../../ring", "../../bpf"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") ||
				strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testkit") {
				return err
			}
			b, err := os.ReadFile(path)
			text := joined.ReplaceAllString(comment.ReplaceAllString(string(b), ""), "")
			for _, l := range literal.FindAllString(text, -1) {
				add(strings.ReplaceAll(strings.Trim(l, `"`), `\"`, `"`))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestRemediesWork: every command that explain, doctor, an error or a log message names is run here, or has a reason
// not to be. A new one fails until it is in a table.
func TestRemediesWork(t *testing.T) {
	used := map[string]bool{}
	lines := map[string]string{} // command lines to run; the value is a command of a remedy
	commands := commandsOf(t)
	if len(commands) < 100 {
		t.Fatalf("only %d commands found", len(commands))
	}
	for _, c := range commands {
		best, run := "", false
		for _, table := range []map[string]string{tried, untried} {
			for prefix := range table {
				if strings.HasPrefix(c, prefix) && len(prefix) > len(best) {
					best = prefix
					_, run = tried[prefix]
				}
			}
		}
		if best == "" {
			t.Errorf("%q: a remedy that no test runs and that has no reason", c)
		}
		used[best] = true
		if run {
			line := tried[best]
			if line == "" {
				line = best
			}
			lines[line] = c
		}
	}
	for _, table := range []map[string]string{tried, untried} {
		for prefix := range table {
			if !used[prefix] {
				t.Errorf("%q: no remedy begins like this any more", prefix)
			}
		}
	}
	h := newDaemonHosts(t)
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asCommand, h.exe)
	bin := t.TempDir()
	if err := os.WriteFile(bin+"/xwarp", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	const queues = "numtxqueues 4 numrxqueues 4"
	h.ip(t, strings.Fields("link add spare0 "+queues+" type veth peer name spare1 "+queues)...)
	for line, text := range lines {
		cmd := exec.Command("sh", "-e", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XWARP_SOCKET="+h.socket,
			"XWARP_FILE="+h.socket+".toml")
		var out []byte
		err := h.A.Do(func() (err error) {
			out, err = cmd.CombinedOutput()
			return err
		})
		if err != nil {
			t.Errorf("%s (as in %q): %v: %s", line, text, err, out)
		}
	}
}
