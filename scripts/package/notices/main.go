// Command notices lists the modules in binaries and checks their licences. notices DIRECTORY BINARY... writes into the
// directory
//
//	copyright      the licence texts of every module in the binaries, which must be distributed with them
//	sbom.cdx.json  the modules with versions and licences, in CycloneDX
//
// It fails if a module has no licence, or one that is not in the list of allowed licences.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: notices DIRECTORY BINARY...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(dir string, binaries []string) error {
	mods, goVersion, err := modules(binaries)
	if err != nil {
		return err
	}
	if err := locate(mods); err != nil {
		return err
	}
	mods = append(mods, &module{Path: "std", Version: goVersion, Dir: goRoot()})
	var errs []error
	for _, m := range mods {
		errs = append(errs, m.read())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "copyright"), copyright(mods), 0o644); err != nil {
		return err
	}
	b, err := bom(mods, os.Getenv("VERSION"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "sbom.cdx.json"), b, 0o644)
}

// module is one module of a binary.
type module struct {
	Path, Version, Dir string
	licences           []string // SPDX identifiers
	texts              []text
}

type text struct{ file, body string }

// modules returns the modules that are linked into the binaries, each version once, sorted by path. It also returns the
// version of Go.
func modules(binaries []string) (mods []*module, goVersion string, err error) {
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b)
		if err != nil {
			return nil, "", err
		}
		goVersion = info.GoVersion
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			mods = append(mods, &module{Path: d.Path, Version: d.Version})
		}
	}
	slices.SortFunc(mods, func(a, b *module) int {
		return strings.Compare(a.Path+a.Version, b.Path+b.Version)
	})
	return slices.CompactFunc(mods, func(a, b *module) bool {
		return a.Path == b.Path && a.Version == b.Version
	}), goVersion, nil
}

// locate sets the directory with the source of each module. The go command has these sources, because it built the
// binaries.
func locate(mods []*module) error {
	if len(mods) == 0 {
		return nil
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range mods {
		args = append(args, m.Path+"@"+m.Version)
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var m module
		if err := d.Decode(&m); err != nil {
			return fmt.Errorf("go mod download: %w", err)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
	for _, m := range mods {
		m.Dir = dirs[m.Path+"@"+m.Version]
	}
	return nil
}

func goRoot() string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
