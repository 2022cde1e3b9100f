package script

import (
	"fmt"
	"strings"
)

// Difference is one entry of the golden file: where the kernel does not follow a script, and why the script is still
// correct.
type Difference struct {
	Name string
	Step string // the first step that the kernel did not follow; empty: the script is for our stack only
	Why  string
}

// ParseDifferences reads
//
//	kernel 6.18
//
//	script name
//		at: the step, as written in the script
//		why: in words
//
// with "not run" in place of "at: ..." if a script is for our stack only. Lines that start with # are comments.
func ParseDifferences(text string) (kernel string, all map[string]Difference, err error) {
	all = map[string]Difference{}
	var d *Difference
	flush := func() error {
		if d == nil {
			return nil
		}
		if _, twice := all[d.Name]; twice || d.Why == "" {
			return fmt.Errorf("%s: listed twice, or without a reason", d.Name)
		}
		all[d.Name] = *d
		d = nil
		return nil
	}
	for i, raw := range strings.Split(text, "\n") {
		line := strings.TrimSpace(raw)
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case line == "" || line[0] == '#' || line == "not run":
		case word == "kernel":
			kernel = rest
		case word == "script":
			if err := flush(); err != nil {
				return "", nil, err
			}
			d = &Difference{Name: rest}
		case d != nil && word == "at:":
			d.Step = rest
		case d != nil && word == "why:":
			d.Why = rest
		case d != nil && d.Why != "":
			d.Why += " " + line
		default:
			return "", nil, fmt.Errorf("line %d: want kernel, script, at or why", i+1)
		}
	}
	return kernel, all, flush()
}
