// Command reqs keeps the table of requirements in its README: each requirement of the RFCs in few words, the
// code that fulfils it, and the tests that prove it.
//
//	go run ./scripts/reqs           checks; exit status 1 says what is wrong
//	go run ./scripts/reqs -write    writes the table anew
//
// The requirements and their code are in requirements.txt. Which test proves what stands at the test, in its comment:
//
//	//req:rfc5044-4.3-1 rfc5044-4.3-2
//	func TestVectors(t *testing.T) {
//
// or above a packet script, as a line "#req:rfc9768-3.2.2-1".
//
// The check fails when a requirement has no test and no reason for that, when a test names a requirement or a
// requirement names code that does not exist, and when the table is not what would be written. It also fails when a
// document that leads through the code (engine/README.md) names functions that do not exist.
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
		faults = append(faults, tableFile+": not up to date: go run ./scripts/reqs -write")
	}
	return faults, nil
}

// replace puts the table between its marks.
func replace(readme []byte, table string) ([]byte, error) {
	text := string(readme)
	i, j := strings.Index(text, begin), strings.Index(text, end)
	if i < 0 || j < i || strings.Count(text, begin) > 1 || strings.Count(text, end) > 1 {
		return nil, fmt.Errorf("the lines %q and %q must stand there once, around the table of "+
			"requirements", begin, end)
	}
	return []byte(text[:i] + begin + "\n" + table + text[j:]), nil
}
