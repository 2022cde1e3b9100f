// Command reqs maintains the table of requirements in scripts/reqs/README.md: each requirement of the RFCs in brief,
// the code that fulfils it, and the tests that prove it.
//
//	go run ./scripts/reqs           checks; prints faults and exits with status 1 if there are any
//	go run ./scripts/reqs -write    rewrites the table
//
// The requirements, each with its code, are in requirements.txt. A test names the requirements that it proves in its
// comment:
//
//	//req:rfc5044-4.3-1 rfc5044-4.3-2
//	func TestVectors(t *testing.T) {
//
// A packet script names them in the comment above it, in a line such as "#req:rfc9768-3.2.2-1".
//
// The check fails if a requirement has neither a test nor a reason for having none. It fails if a test names an unknown
// requirement, if a requirement names unknown code, and if the table is out of date. It also fails if a document about
// the code, such as engine/README.md, names functions that do not exist.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	write := flag.Bool("write", false, "write the table into scripts/reqs/README.md")
	flag.Parse()
	faults, err := run(".", *write)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reqs:", err)
		os.Exit(2)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// tableFile is the file with the table, which is between the lines begin and end.
const (
	tableFile = "scripts/reqs/README.md"

	begin = "<!-- requirements: written by go run ./scripts/reqs -write -->"
	end   = "<!-- end of requirements -->"
)

// run checks the repository at root and returns the faults. If the table is out of date, it writes the table if write,
// and otherwise returns a fault.
func run(root string, write bool) (faults []string, err error) {
	file, err := os.Open(filepath.Join(root, "scripts", "reqs", "requirements.txt"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := parse(file)
	if err != nil {
		return nil, err
	}
	src, err := scan(root)
	if err != nil {
		return nil, err
	}
	faults = check(list, src)
	for _, name := range walks {
		more, err := checkDoc(root, name, src)
		if err != nil {
			return faults, err
		}
		faults = append(faults, more...)
	}
	readme := filepath.Join(root, tableFile)
	old, err := os.ReadFile(readme)
	if err != nil {
		return faults, err
	}
	text, err := replace(old, table(list, src))
	if err != nil {
		return append(faults, tableFile+": "+err.Error()), nil
	}
	switch {
	case bytes.Equal(old, text):
	case write:
		return faults, os.WriteFile(readme, text, 0o644)
	default:
		faults = append(faults, tableFile+": not up to date; run: go run ./scripts/reqs -write")
	}
	return faults, nil
}

// replace returns the text of readme with table between the lines begin and end.
func replace(readme []byte, table string) ([]byte, error) {
	text := string(readme)
	i, j := strings.Index(text, begin), strings.Index(text, end)
	if i < 0 || j < i || strings.Count(text, begin) > 1 || strings.Count(text, end) > 1 {
		return nil, fmt.Errorf("the lines %q and %q must enclose the table of requirements, once "+
			"each", begin, end)
	}
	return []byte(text[:i] + begin + "\n" + table + text[j:]), nil
}
