// Command reqs maintains the table of requirements in its README: each requirement of the RFCs in brief, the
// code that fulfils it, and the tests that prove it.
//
//	go run ./scripts/reqs           checks; prints faults and exits with status 1 if there are any
//	go run ./scripts/reqs -write    rewrites the table
//
// The requirements and their code are in requirements.txt. A test names the requirements that it proves in its comment:
//
//	//req:rfc5044-4.3-1 rfc5044-4.3-2
//	func TestVectors(t *testing.T) {
//
// or above a packet script, as a line "#req:rfc9768-3.2.2-1".
//
// The check fails if a requirement has neither a test nor a reason, if a test names a requirement or a requirement
// names code that does not exist, and if the table is out of date. It also fails if a document about the code, such as
// engine/README.md, names functions that do not exist.
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

// The table stands between these lines of its file.
const (
	tableFile = "scripts/reqs/README.md"

	begin = "<!-- requirements: written by go run ./scripts/reqs -write -->"
	end   = "<!-- end of requirements -->"
)

// run checks the repository at root, and writes the table if told so.
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

// replace puts the table between its marks.
func replace(readme []byte, table string) ([]byte, error) {
	text := string(readme)
	i, j := strings.Index(text, begin), strings.Index(text, end)
	if i < 0 || j < i || strings.Count(text, begin) > 1 || strings.Count(text, end) > 1 {
		return nil, fmt.Errorf("the lines %q and %q must enclose the table of requirements, once "+
			"each", begin, end)
	}
	return []byte(text[:i] + begin + "\n" + table + text[j:]), nil
}
