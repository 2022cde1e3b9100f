package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Maximum widths of lines in columns. A tab counts as four columns.
const (
	codeColumns    = 100
	commentColumns = 120
)

// unwrappable matches comments that are not prose: directives, and indented drawings or lists.
var unwrappable = regexp.MustCompile(`^//([a-z]+:|\t|   )`)

// checkWidth returns a fault for each line of p that is wider than allowed. Lines with raw strings, field tags or a
// long string, comments that are not prose, and generated files may be wider.
func checkWidth(p pkg) (faults []string, err error) {
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(src[:min(len(src), 200)], []byte("DO NOT EDIT")) {
			continue
		}
		for _, line := range wide(src) {
			faults = append(faults, fmt.Sprintf(
				"%s/%s:%d: line wider than %d columns (%d for comments)",
				p.ImportPath, name, line, codeColumns, commentColumns))
		}
	}
	return faults, nil
}

// wide returns the numbers of the lines of a Go file that are too wide.
func wide(src []byte) (numbers []int) {
	free := map[int]bool{}     // lines that may be wider: with a raw string, or without a place to break
	comments := map[int]bool{} // lines that end in a comment
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	for pos, t, text := s.Scan(); t != token.EOF; pos, t, text = s.Scan() {
		line := file.Line(pos)
		switch {
		case t == token.COMMENT:
			comments[line] = true
			free[line] = unwrappable.MatchString(text)
		case t == token.STRING && text[0] == '`':
			for i := range strings.Count(text, "\n") + 1 {
				free[line+i] = true
			}
		case t == token.STRING && len(text) > codeColumns-30:
			free[line] = true // a single long string, at which the line cannot be broken
		}
	}
	for i, line := range bytes.Split(src, []byte("\n")) {
		n := utf8.RuneCount(line) + 3*bytes.Count(line, []byte("\t"))
		limit := codeColumns
		if comments[i+1] {
			limit = commentColumns
		}
		if n > limit && !free[i+1] {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}
