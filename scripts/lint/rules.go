package main

import (
	"fmt"
	"slices"
	"strings"
)

// module is the import path of this module.
const module = "xwarp"

// layer has the rules for the non-test code in and below a directory. If directories of layers contain each other, the
// innermost layer applies. A package may import packages of its own layer and of the standard library. Paths that end
// in /... stand for a whole tree, as in go list.
type layer struct {
	name   string   // the directory
	ours   []string // allowed imports of this module
	others []string // allowed imports of other modules
	walled []string // packages that must not be linked, not even indirectly
	values bool     // a protocol package: no goroutine, channel or select, and no import of a package in ioFree
	tests  bool     // a test kit: only tests and the layer itself may import it
}

// ioFree are the packages of the standard library that a layer with values must not import, because they have a clock,
// threads or I/O.
var ioFree = []string{"net/...", "os/...", "time/...", "sync/...", "syscall/...", "runtime/...",
	"context/...", "log/...", "io/fs",
	"crypto/rand", "plugin"}

// anyModule, as layer.others, allows every module.
var anyModule = []string{"..."}

// Modules that access the kernel.
const (
	xsys    = "golang.org/x/sys/..."
	ebpf    = "github.com/cilium/ebpf/..."
	netlink = "github.com/vishvananda/netlink/..."
	netns   = "github.com/vishvananda/netns/..."
)

// layers are all layers, from the lowest protocol upwards. engine/README.md describes them.
var layers = []layer{
	{name: "tcp", values: true},
	{name: "mpa", ours: []string{"xwarp/tcp/seq", "xwarp/tcp/checksum"}, values: true},
	{name: "ddp", ours: []string{"xwarp/mpa/ulpdu"}, values: true},
	{name: "bpf", others: []string{xsys, ebpf, netlink}},
	{name: "ring", others: []string{xsys, netlink}},
	{name: "ring/gso", ours: within("ring", "tcp/ip", "tcp/wire"), others: []string{xsys}},
	{name: "ring/monitor", ours: within("ring", "tcp/ip", "tcp/wire")},

	{name: "engine/verbs", ours: within("tcp", "mpa", "ddp")},
	{name: "engine/sockets", ours: within("tcp", "mpa", "engine/budget", "engine/fair",
		"engine/guard", "engine/internal/core", "engine/iwarp", "engine/verbs"),
		others: []string{xsys}, walled: wall},
	{name: "engine/xdp", ours: within("tcp", "bpf", "ring", "engine/budget", "engine/bytestream",
		"engine/esp", "engine/fair", "engine/guard", "engine/host", "engine/internal/core",
		"engine/ipsec", "engine/iwarp", "engine/overtcp", "engine/sockets", "engine/stack",
		"engine/tally", "engine/verbs", "engine/wake"),
		others: []string{xsys, netlink}},
	{name: "engine/internal/core", ours: within("tcp", "mpa", "ddp", "engine/budget", "engine/fair",
		"engine/guard", "engine/host/ports", "engine/iwarp", "engine/tally", "engine/verbs",
		"engine/wake"), others: []string{xsys}, walled: wall},
	{name: "engine/budget", ours: within("tcp", "engine/plain"),
		others: []string{"golang.org/x/time/rate"}},
	{name: "engine/ipsec", ours: within("tcp", "engine/esp", "engine/host/xfrm", "engine/stack")},
	{name: "engine/stack", ours: within("tcp", "ring", "engine/budget", "engine/esp",
		"engine/fair", "engine/tally")},
	{name: "engine/fair"},
	{name: "engine/guard"},
	{name: "engine/tally"},
	{name: "engine/iwarp", ours: within("tcp", "mpa", "ddp", "engine/verbs"), walled: wall},
	{name: "engine/overtcp", ours: within("tcp", "engine/iwarp", "engine/stack")},
	{name: "engine/bytestream", ours: within("tcp", "engine/stack", "engine/wake")},
	{name: "engine/esp", ours: within("tcp/ip"), values: true},
	{name: "engine/host", ours: within("ring", "bpf/cleaner", "engine/wake"),
		others: []string{xsys, netlink, netns}},
	{name: "engine/host/xfrm", ours: within("engine/host", "engine/esp"),
		others: []string{xsys, netlink}},
	{name: "engine/plain"},
	{name: "engine/ranges"},
	{name: "engine/version"},
	{name: "engine/wake"},
	{name: "engine/transfer", ours: within("tcp", "ddp", "engine/guard", "engine/host",
		"engine/plain", "engine/verbs"),
		others: []string{xsys, "golang.org/x/sync/...", "github.com/cespare/xxhash/..."}},
	{name: "engine/daemon", ours: within("tcp", "engine/budget", "engine/esp", "engine/host",
		"engine/plain", "engine/ranges", "engine/verbs", "engine/wake", "engine/daemon/control",
		"engine/daemon/device", "engine/daemon/export", "engine/daemon/rendezvous",
		"engine/daemon/session", "engine/xdp"),
		others: []string{xsys, netlink, "github.com/prometheus/client_golang/..."}},
	{name: "engine/daemon/device", ours: within("bpf", "ring", "ddp", "mpa", "engine/budget",
		"engine/esp", "engine/host", "engine/internal/core", "engine/ipsec", "engine/sockets",
		"engine/verbs", "engine/xdp", "engine/daemon/config", "engine/daemon/control",
		"engine/daemon/counters", "engine/daemon/nldev", "engine/daemon/portmapper",
		"engine/daemon/preflight"),
		others: []string{xsys}},
	{name: "engine/daemon/session", ours: within("ring", "ddp", "mpa", "engine/budget",
		"engine/guard",
		"engine/internal/core", "engine/plain", "engine/ranges", "engine/verbs", "engine/wake",
		"engine/daemon/config", "engine/daemon/control", "engine/daemon/device",
		"engine/daemon/nldev",
		"engine/daemon/rendezvous"),
		others: []string{xsys, "golang.org/x/sync/errgroup"}},
	{name: "engine/daemon/export", ours: within("ddp", "engine/guard", "engine/internal/core",
		"engine/plain", "engine/transfer",
		"engine/verbs", "engine/wake", "engine/daemon/config", "engine/daemon/control",
		"engine/daemon/device"),
		others: []string{xsys}},
	{name: "engine/daemon/control", ours: within("ddp", "mpa", "engine/verbs"),
		others: []string{xsys}},
	{name: "engine/daemon/client", ours: within("ddp", "mpa", "engine/verbs", "engine/wake",
		"engine/daemon/control"), others: []string{xsys}},
	{name: "engine/testkit", ours: within("mpa", "engine"),
		others: anyModule, tests: true},

	{name: "bench", ours: within("engine", "tcp", "ddp", "bpf", "ring"),
		others: anyModule},
	{name: "cmd", ours: within("bench", "engine", "tcp", "mpa", "ddp", "bpf", "ring"),
		others: anyModule},
	{name: "scripts", ours: within("bench/topo", "bench/relay"), others: anyModule},
}

// within returns patterns for the whole trees of directories of this module.
func within(dirs ...string) (patterns []string) {
	for _, d := range dirs {
		patterns = append(patterns, module+"/"+d+"/...")
	}
	return patterns
}

// exceptions are additional imports that single packages may have, each with the reason.
var exceptions = map[string][]string{
	"xwarp/engine/daemon/config": {"github.com/BurntSushi/toml"}, // format of the daemon's configuration file
	// time.Duration and its units, so that callers need not convert durations; only the engine reads the clock
	"xwarp/tcp/tick": {"time"},
	// tells which instructions the processor has
	"xwarp/tcp/checksum": {"golang.org/x/sys/cpu"},
}

// topLevel are the allowed names at the top level of the repository, besides names that begin with a dot. build is
// allowed, but not committed.
var topLevel = []string{"go.mod", "go.sum", "bpf", "cmd", "engine", "tcp", "mpa", "ddp", "ring",
	"bench", "scripts", "Makefile",
	"README.md", "LICENSE", "build"}

// wall are the packages that programs over kernel sockets must not link: the engine's own TCP, AF_XDP and eBPF, and the
// modules that change the network of a host.
var wall = append(within("engine/stack", "engine/esp", "bpf", "ring"), ebpf, netlink)

// pkg has the fields of `go list -json` that the rules need.
type pkg struct {
	ImportPath                string
	Dir                       string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Imports                   []string
	Deps                      []string
}

// findLayer returns the innermost layer that contains the package path. ok is false if there is none.
func findLayer(path string) (found layer, ok bool) {
	for _, r := range layers {
		if len(r.name) > len(found.name) && matches(path, within(r.name)) {
			found, ok = r, true
		}
	}
	return found, ok
}

// checkImports returns a fault for each import of p that its layer forbids, and for each linked package behind the
// wall.
func checkImports(p pkg) (faults []string) {
	r, ok := findLayer(p.ImportPath)
	if !ok {
		return []string{fmt.Sprintf("%s: belongs to no layer; see scripts/lint/rules.go",
			p.ImportPath)}
	}
	for _, path := range p.Imports {
		if path == "C" {
			faults = append(faults, fmt.Sprintf("%s: uses cgo", p.ImportPath))
			continue
		}
		if kit, ok := findLayer(path); ok && kit.tests && kit.name != r.name {
			faults = append(faults, fmt.Sprintf("%s: imports %s; only tests may", p.ImportPath,
				path))
		}
		if !r.allows(path) && !matches(path, exceptions[p.ImportPath]) {
			faults = append(faults, fmt.Sprintf("%s: imports %s; layer %s may not", p.ImportPath,
				path, r.name))
		}
	}
	for _, path := range p.Deps {
		if matches(path, r.walled) {
			faults = append(faults, fmt.Sprintf("%s: links %s; see wall in scripts/lint/rules.go",
				p.ImportPath, path))
		}
	}
	return faults
}

// unusedRules returns a fault for each allowed import of a layer, and for each exception, that no package uses. They
// should be removed, because each permission is a decision.
func unusedRules(packages []pkg) (faults []string) {
	used := map[string][]string{}
	for _, p := range packages {
		r, _ := findLayer(p.ImportPath)
		used[r.name] = append(used[r.name], p.Imports...)
		for _, allowed := range exceptions[p.ImportPath] {
			needs := func(path string) bool { return matches(path, []string{allowed}) }
			if !slices.ContainsFunc(p.Imports, needs) {
				faults = append(faults, fmt.Sprintf("%s: does not import %s; remove the exception "+
					"from scripts/lint/rules.go", p.ImportPath, allowed))
			}
		}
	}
	for _, r := range layers {
		for _, allowed := range slices.Concat(r.ours, r.others) {
			needs := func(path string) bool { return matches(path, []string{allowed}) }
			if !slices.ContainsFunc(used[r.name], needs) {
				faults = append(faults, fmt.Sprintf("layer %s: no package imports %s; "+
					"remove it from scripts/lint/rules.go", r.name, allowed))
			}
		}
	}
	return faults
}

func (r layer) allows(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case first == module:
		to, _ := findLayer(path)
		return to.name == r.name || matches(path, r.ours)
	case strings.Contains(first, "."):
		return matches(path, r.others)
	default:
		return !r.values || !matches(path, ioFree)
	}
}

// matches reports whether path equals one of patterns or is in the tree of a pattern that ends in /... . The pattern
// "..." matches every path.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		tree, recursive := strings.CutSuffix(p, "/...")
		return p == "..." || path == tree || recursive && strings.HasPrefix(path, tree+"/")
	})
}
