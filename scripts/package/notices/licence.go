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

// allowed are the licences of modules that may be in a binary under Apache-2.0, by their SPDX identifiers. At most they
// require that their text and the authors' names are distributed. OFL-1.1 is the licence of the fonts in plots.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "ISC", "MIT",
	"OFL-1.1"}

// chosen has the modules whose licence was determined by reading their files: the file that applies, and its licence.
var chosen = map[string]struct{ file, id string }{
	"github.com/ajstarks/svgo":   {"LICENSE", "CC-BY-4.0"},    // another file only links to the licence
	"github.com/golang/freetype": {"licenses/ftl.txt", "FTL"}, // the alternative is GPL-2.0
}

// legalFile matches the names of files that must be distributed with a binary. licenceFile matches those of them that
// must contain a known licence.
var (
	legalFile   = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)([.-].*)?$`)
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
)

// minLicencePercent is the percentage of a licence file that must be the text of a known licence. The rest is names and
// years.
const minLicencePercent = 75

// read sets licences and texts from the files in the module's top directory. It fails if there is no licence, or one
// that is not allowed.
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
		if f.IsDir() || filepath.Ext(f.Name()) == ".go" || !legalFile.MatchString(f.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.Dir, f.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, text{f.Name(), string(b)})
		if !licenceFile.MatchString(f.Name()) {
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

// identify returns the licences in a text. It fails if one is not allowed or if too much of the text is unknown.
func identify(b []byte) (ids []string, err error) {
	c := licensecheck.Scan(b)
	if c.Percent < minLicencePercent {
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

// bom returns the bill of materials in CycloneDX. It has no time and no serial number, so that the same binaries yield
// the same bytes.
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
