package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
)

const mit = `Copyright (c) 2020 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge,
publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so,
subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE
FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

func source(t *testing.T, files map[string]string) *module {
	t.Helper()
	m := &module{Path: "example.org/m", Version: "v1.0.0", Dir: t.TempDir()}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestAllowed checks that a module with an allowed licence is accepted, and that all its legal texts are in the
// notices.
func TestAllowed(t *testing.T) {
	m := source(t, map[string]string{"LICENSE.txt": mit, "NOTICE": "made by Somebody",
		"main.go": "package main"})
	if err := m.read(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"MIT"}, m.licences); d != "" {
		t.Error(d)
	}
	c := string(copyright([]*module{m}))
	for _, want := range []string{"example.org/m v1.0.0: MIT", "Copyright (c) 2020 Somebody",
		"made by Somebody"} {
		if !strings.Contains(c, want) {
			t.Errorf("the notices lack %q", want)
		}
	}
}

// TestRefused checks that a module without a licence, with an unknown one or with one that is not allowed is refused.
func TestRefused(t *testing.T) {
	gpl := "GNU GENERAL PUBLIC LICENSE\nThis program is free software; you can redistribute it " +
		"and/or modify it under the terms of the GNU General Public License as published by the " +
		"Free Software Foundation; either version 2 of the License, or (at your option) any " +
		"later version.\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none": {map[string]string{"README": mit}, "no licence"},
		"unknown": {map[string]string{"LICENSE": "You may do what you like on Tuesdays."},
			"read it"},
		"copyleft": {map[string]string{"LICENSE": mit, "COPYING": gpl}, "COPYING"},
	} {
		if err := source(t, tc.files).read(); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestOwnBinary checks that a binary of this module is accepted, and that its bill of materials is well formed and the
// same each time.
func TestOwnBinary(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := run(dir, []string{exe}); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(first), cdx.BOMFileFormatJSON).Decode(
		&b); err != nil {
		t.Fatal(err)
	}
	parts := map[string]bool{}
	for _, c := range *b.Components {
		parts[c.Name] = true
		if c.Licenses == nil || len(*c.Licenses) == 0 {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	for _, want := range []string{"std", "github.com/google/licensecheck",
		"github.com/CycloneDX/cyclonedx-go"} {
		if !parts[want] {
			t.Errorf("the list lacks %s", want)
		}
	}
	if err := run(dir, []string{exe}); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json")); err != nil ||
		!bytes.Equal(first, again) {
		t.Errorf("the list differs the second time: %v", err)
	}
}
