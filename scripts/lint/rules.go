package main

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path that our own packages begin with.
const module = "xwarp"

// room is a top-level directory and what the non-test code in it may import. Paths end in /... for a whole tree, as in
// go list; a package may always import its own room.
type room struct {
	name   string
	ours   []string // of this module
	others []string // of other modules; "any" for all that go.mod has
	never  []string // of other modules, against others
	banned []string // of the standard library
	values bool     // no goroutine, channel or select: protocols are values, not processes
}

// ioFree is what packages without clock, thread and I/O stay away from: the four that the architecture names, and the
// ways around them.
var ioFree = []string{"net/...", "os/...", "time/...", "sync/...", "syscall/...", "runtime/...", "context/...", "log/...", "io/fs",
	"crypto/rand", "plugin"}

// drivers is what may touch the kernel.
var drivers = []string{"golang.org/x/sys/...", "github.com/asavie/xdp/...", "github.com/cilium/ebpf/...",
	"github.com/vishvananda/netlink/...", "github.com/vishvananda/netns/..."}

const gopacket = "github.com/google/gopacket/..."

// rooms is the house. It says the same as the README; change both.
var rooms = []room{
	{name: "tcp", banned: ioFree, values: true},
	{name: "mpa", ours: []string{"xwarp/tcp/seq"}, banned: ioFree, values: true},
	{name: "ddp", ours: []string{"xwarp/mpa/ulp"}, banned: ioFree, values: true},
	{name: "bpf", others: drivers},
	{name: "ring", others: drivers},
	{
		name:   "engine",
		ours:   []string{"xwarp/tcp/...", "xwarp/mpa/...", "xwarp/ddp/...", "xwarp/bpf/...", "xwarp/ring/..."},
		others: []string{"any"},
		never:  []string{gopacket, "github.com/asavie/xdp/..."}, // both cannot carry a data path: see the README
	},
	{
		name:   "bench",
		ours:   []string{"xwarp/engine/...", "xwarp/tcp/...", "xwarp/mpa/...", "xwarp/ddp/...", "xwarp/bpf/...", "xwarp/ring/..."},
		others: []string{"any"},
	},
	{
		name:   "cmd",
		ours:   []string{"xwarp/bench/...", "xwarp/engine/...", "xwarp/tcp/...", "xwarp/mpa/...", "xwarp/ddp/...", "xwarp/bpf/...", "xwarp/ring/..."},
		others: []string{"any"},
	},
	{name: "scripts", ours: []string{"xwarp/bench/topo"}, others: []string{"any"}},
}

// exceptions are packages that may import more than their room, each with its reason.
var exceptions = map[string][]string{
	"xwarp/engine/daemon/config": {"github.com/BurntSushi/toml"}, // the daemon's file
	"xwarp/ring/capture":         {gopacket},                     // pcapng files of what a decorator saw: a tool, not on the data path
}

// topLevel is what stands in the repository beside dot-files; build is not committed.
var topLevel = []string{"go.mod", "go.sum", "bpf", "cmd", "engine", "tcp", "mpa", "ddp", "ring", "bench", "scripts", "Makefile",
	"README.md", "LICENSE", "build"}

// pkg is what the rules need of `go list -json`.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// findRoom returns the room of a package of ours.
func findRoom(path string) (room, bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, module+"/"), "/")
	i := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

// checkImports returns what is wrong with the imports of p.
func checkImports(p pkg) (faults []string) {
	r, ok := findRoom(p.ImportPath)
	if !ok {
		return []string{fmt.Sprintf("%s: lies in no room of the house", p.ImportPath)}
	}
	for _, path := range p.Imports {
		if path == "C" {
			faults = append(faults, fmt.Sprintf("%s: uses cgo", p.ImportPath))
			continue
		}
		if !r.allows(path) && !matches(path, exceptions[p.ImportPath]) {
			faults = append(faults, fmt.Sprintf("%s: imports %s, which %s may not", p.ImportPath, path, r.name))
		}
	}
	return faults
}

func (r room) allows(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case first == module:
		return matches(path, append([]string{module + "/" + r.name + "/..."}, r.ours...))
	case strings.Contains(first, "."):
		return !matches(path, r.never) && (slices.Contains(r.others, "any") || matches(path, r.others))
	default:
		return !matches(path, r.banned)
	}
}

// matches reports whether path is one of patterns or lies in one that ends in /... .
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		tree, whole := strings.CutSuffix(p, "/...")
		return path == tree || whole && strings.HasPrefix(path, tree+"/")
	})
}
