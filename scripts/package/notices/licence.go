package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// allowed are the licences that may be shipped in a binary under Apache-2.0: they ask for their text and
// their authors' names at most. OFL-1.1 is that of fonts which the plots use.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "ISC", "MIT",
	"OFL-1.1"}

// chosen are modules that offer several files of which one counts here, and somebody has read it.
var chosen = map[string]struct{ file, id string }{
	"github.com/ajstarks/svgo":   {"LICENSE", "CC-BY-4.0"},    // beside it is a file with a link to it
	"github.com/golang/freetype": {"licenses/ftl.txt", "FTL"}, // in place of the GPL-2.0
}

// legal are the files that go with a binary; of these, grant are those that must hold a known licence.
var (
	legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)([.-].*)?$`)
	grant = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
)

// covered is how much of a licence file a known text must make up, in percent: names and years are the rest.
const covered = 75

// read fills licences and texts from the files at the top of the module.
func (m *module) read() error {
	if c, ok := chosen[m.Path]; ok {
		b, err := os.ReadFile(filepath.Join(m.Dir, c.file))
		m.licences, m.texts = []string{c.id}, []text{{c.file, string(b)}}
		return err
	}
	list, err := os.ReadDir(m.Dir)
	if err != nil {
		return fmt.Errorf("%s@%s: %w", m.Path, m.Version, err)
	}
	for _, f := range list {
		if f.IsDir() || filepath.Ext(f.Name()) == ".go" || !legal.MatchString(f.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.Dir, f.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, text{f.Name(), string(b)})
		if !grant.MatchString(f.Name()) {
			continue
		}
		ids, err := identify(b)
		if err != nil {
			return fmt.Errorf("%s@%s: %s: %w", m.Path, m.Version, f.Name(), err)
		}
		m.licences = append(m.licences, ids...)
	}
	slices.Sort(m.licences)
	m.licences = slices.Compact(m.licences)
	if len(m.licences) == 0 {
		return fmt.Errorf("%s@%s: no licence: it may not be shipped", m.Path, m.Version)
	}
	return nil
}

// identify returns the licences of a text; all must be allowed.
func identify(b []byte) (ids []string, err error) {
	c := licensecheck.Scan(b)
	if c.Percent < covered {
		return nil, fmt.Errorf("only %.0f %% of it is a known licence: read it, then decide",
			c.Percent)
	}
	for _, m := range c.Match {
		if m.IsURL {
			continue
		}
		if !slices.Contains(allowed, m.ID) {
			return nil, fmt.Errorf("%s is not among the licences that may be shipped: %s", m.ID,
				strings.Join(allowed, ", "))
		}
		ids = append(ids, m.ID)
	}
	return ids, nil
}

func copyright(mods []*module) []byte {
	var b bytes.Buffer
	b.WriteString("xwarp is under the Apache License 2.0, see LICENSE. Its binaries hold the " +
		"modules below.\n")
	for _, m := range mods {
		fmt.Fprintf(&b, "\n%s\n%s %s: %s\n", strings.Repeat("=", 100), m.Path, m.Version,
			strings.Join(m.licences, ", "))
		for _, t := range m.texts {
			fmt.Fprintf(&b, "\n--- %s\n\n%s\n", t.file,
				strings.TrimRight(strings.ReplaceAll(t.body, "\r\n", "\n"), "\n"))
		}
	}
	return b.Bytes()
}

// bom is the list in CycloneDX, without time and serial number: the same binaries have the same list.
func bom(mods []*module, version string) ([]byte, error) {
	v := cdx.NewBOM()
	v.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "xwarp", Version: version, BOMRef: "xwarp",
		Licenses: spdx("Apache-2.0"),
	}}
	var list []cdx.Component
	refs := []string{}
	for _, m := range mods {
		purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		list = append(list, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: purl,
			PackageURL: purl, Licenses: spdx(m.licences...),
		})
		refs = append(refs, purl)
	}
	v.Components = &list
	v.Dependencies = &[]cdx.Dependency{{Ref: "xwarp", Dependencies: &refs}}
	var b bytes.Buffer
	err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(v)
	return b.Bytes(), err
}

func spdx(ids ...string) *cdx.Licenses {
	var l cdx.Licenses
	for _, id := range ids {
		l = append(l, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &l
}
