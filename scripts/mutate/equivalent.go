package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readEquivalent reads the file of changes that no test can detect, and returns the reasons by key. Each entry is a
// line with the key of a change, followed by indented lines with the reason. An entry without a reason is an error, and
// so is one that is not in changes: its reason must be reviewed when the code has changed. Entries of packages without
// a change in changes are ignored.
func readEquivalent(path string, changes []*change) (reasons map[string]string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	possible, dirs := map[string]bool{}, map[string]bool{}
	for _, c := range changes {
		possible[c.key()] = true
		dirs[filepath.Dir(c.file)] = true
	}
	reasons = map[string]string{}
	var key string
	var faults []error
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t' && key != "":
			reasons[key] = strings.TrimSpace(reasons[key] + " " + strings.TrimSpace(line))
		default:
			key = line
			if _, twice := reasons[key]; twice {
				faults = append(faults, fmt.Errorf("%s: duplicate entry: %s", path, key))
			}
			reasons[key] = ""
		}
	}
	for key, why := range reasons {
		file, _, _ := strings.Cut(key, ":")
		if !possible[key] && dirs[filepath.Dir(file)] {
			faults = append(faults, fmt.Errorf("%s: no longer a possible change: %s", path, key))
		}
		if why == "" {
			faults = append(faults, fmt.Errorf("%s: no reason given: %s", path, key))
		}
	}
	return reasons, errors.Join(faults...)
}
