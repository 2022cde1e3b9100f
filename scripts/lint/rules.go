package main

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path that our own packages begin with.
const module = "xwarp"

// layer is a directory and the imports that are allowed to the non-test code in and below it; the innermost layer
// applies. Paths end in /... for a whole tree, as in go list. A package may import its own layer.
type layer struct {
	name   string
	ours   []string // of this module
	others []string // of other modules
	walled []string // must not be linked, at any depth
	values bool     // no goroutine, channel or select, no import of ioFree: protocols are values
	tests  bool     // a test kit: only tests, and itself, import it
}

// ioFree are packages that code without clock, thread and I/O must not import.
var ioFree = []string{"net/...", "os/...", "time/...", "sync/...", "syscall/...", "runtime/...",
	"context/...", "log/...", "io/fs",
	"crypto/rand", "plugin"}

// anyModule allows every module of go.mod.
var anyModule = []string{"..."}

// Modules that access the kernel.
const (
	xsys    = "golang.org/x/sys/..."
	ebpf    = "github.com/cilium/ebpf/..."
	netlink = "github.com/vishvananda/netlink/..."
	netns   = "github.com/vishvananda/netns/..."
)

// layers are ordered from the wire upwards. engine/README.md describes each.
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
		"engine/tally", "engine/verbs"),
		others: []string{xsys, netlink}},
	{name: "engine/internal/core", ours: within("tcp", "mpa", "ddp", "engine/budget", "engine/fair",
		"engine/guard", "engine/host/ports", "engine/iwarp", "engine/tally", "engine/verbs"),
		others: []string{xsys}, walled: wall},
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
	{name: "engine/bytestream", ours: within("tcp", "engine/stack")},
	{name: "engine/esp", ours: within("tcp/ip"), values: true},
	{name: "engine/host", ours: within("ring", "bpf/cleaner"),
		others: []string{xsys, netlink, netns}},
	{name: "engine/host/xfrm", ours: within("engine/host", "engine/esp"),
		others: []string{xsys, netlink}},
	{name: "engine/plain"},
	{name: "engine/ranges"},
	{name: "engine/version"},
	{name: "engine/transfer", ours: within("tcp", "ddp", "engine/guard", "engine/host",
		"engine/plain", "engine/verbs"),
		others: []string{xsys, "golang.org/x/sync/...", "github.com/cespare/xxhash/..."}},
	{name: "engine/daemon", ours: within("tcp", "engine/budget", "engine/esp", "engine/host",
		"engine/plain", "engine/ranges", "engine/verbs", "engine/daemon/control",
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
		"engine/internal/core", "engine/plain", "engine/ranges", "engine/verbs",
		"engine/daemon/config", "engine/daemon/control", "engine/daemon/device",
		"engine/daemon/nldev",
		"engine/daemon/rendezvous"),
		others: []string{xsys, "golang.org/x/sync/errgroup"}},
	{name: "engine/daemon/export", ours: within("ddp", "engine/guard", "engine/internal/core",
		"engine/plain", "engine/transfer",
		"engine/verbs", "engine/daemon/config", "engine/daemon/control",
		"engine/daemon/device"),
		others: []string{xsys}},
	{name: "engine/daemon/control", ours: within("ddp", "mpa", "engine/verbs"),
		others: []string{xsys}},
	{name: "engine/daemon/client", ours: within("ddp", "mpa", "engine/verbs",
		"engine/daemon/control"), others: []string{xsys}},
	{name: "engine/testkit", ours: within("mpa", "engine"),
		others: anyModule, tests: true},

	{name: "bench", ours: within("engine", "tcp", "ddp", "bpf", "ring"),
		others: anyModule},
	{name: "cmd", ours: within("bench", "engine", "tcp", "mpa", "ddp", "bpf", "ring"),
		others: anyModule},
	{name: "scripts", ours: within("bench/topo", "bench/relay"), others: anyModule},
}

// within returns the patterns of whole trees of this module.
func within(dirs ...string) (patterns []string) {
	for _, d := range dirs {
		patterns = append(patterns, module+"/"+d+"/...")
	}
	return patterns
}

// exceptions are packages that may import more than their layer, with the reason.
var exceptions = map[string][]string{
	"xwarp/engine/daemon/config": {"github.com/BurntSushi/toml"}, // the daemon's file
	// a type and its units, so that the API converts nothing; the clock stays with the engine
	"xwarp/tcp/tick": {"time"},
	// which instructions the processor has
	"xwarp/tcp/checksum": {"golang.org/x/sys/cpu"},
}

// topLevel are the names allowed at the top level beside dot-files; build is not committed.
var topLevel = []string{"go.mod", "go.sum", "bpf", "cmd", "engine", "tcp", "mpa", "ddp", "ring",
	"bench", "scripts", "Makefile",
	"README.md", "LICENSE", "build"}

// wall has the engine's own TCP and the modules that change the network of a host. A program on kernel sockets links
// none of them.
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

// findLayer returns the innermost layer of a package of ours.
func findLayer(path string) (found layer, ok bool) {
	for _, r := range layers {
		if len(r.name) > len(found.name) && matches(path, within(r.name)) {
			found, ok = r, true
		}
	}
	return found, ok
}

// checkImports returns the forbidden imports of p.
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

// unusedRules returns the packages and modules that a layer may import and no package of it does, and such exceptions.
// Each permission is a decision, so an unused one goes.
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

// matches reports whether path is one of patterns, or in the tree of one that ends in /... ; "..." matches everything.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		tree, recursive := strings.CutSuffix(p, "/...")
		return p == "..." || path == tree || recursive && strings.HasPrefix(path, tree+"/")
	})
}
