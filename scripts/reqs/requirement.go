package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// requirement is one line of requirements.txt.
type requirement struct {
	line   int
	id     string
	level  string // MUST, MUST NOT, SHOULD, …
	code   string // package.Name or package.Type.Method of the code that fulfils it; notApplicable; or open
	text   string
	reason string // why there is no code and no test; empty unless code is notApplicable or open
}

// Values of requirement.code that name no code: the requirement does not apply, or it is not fulfilled or not proven
// yet.
const (
	notApplicable = "n/a"
	open          = "open"
)

var (
	idForm = regexp.MustCompile(`^[a-z0-9]+(-[A-Za-z0-9.]+)*-[0-9]+$`)
	levels = map[string]bool{"MUST": true, "MUST NOT": true, "SHOULD": true, "SHOULD NOT": true,
		"MAY": true}
)

// parse reads requirements.txt. It returns an error for the first line that is not valid.
func parse(r io.Reader) (list []requirement, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		f := strings.Split(text, " | ")
		if len(f) < 4 || len(f) > 5 {
			return nil,
				fmt.Errorf("requirements.txt, line %d: want id | level | code | text [| reason]", n)
		}
		q := requirement{line: n, id: f[0], level: f[1], code: f[2], text: f[3]}
		if len(f) == 5 {
			q.reason = f[4]
		}
		none := q.code == notApplicable || q.code == open
		switch {
		case !idForm.MatchString(q.id):
			err = fmt.Errorf("%q is not a requirement id such as rfc5044-4.3-1", q.id)
		case seen[q.id]:
			err = fmt.Errorf("duplicate id %s", q.id)
		case !levels[q.level]:
			err = fmt.Errorf("%q is not a level", q.level)
		case none != (q.reason != ""):
			err = fmt.Errorf("%s: a reason is required for code %q and %q, and not allowed otherwise", q.id,
				notApplicable, open)
		}
		if err != nil {
			return nil, fmt.Errorf("requirements.txt, line %d: %w", n, err)
		}
		seen[q.id] = true
		list = append(list, q)
	}
	return list, lines.Err()
}

// document returns the part of the id that names the document with the requirement, such as rfc5044.
func (q *requirement) document() string {
	name, _, _ := strings.Cut(q.id, "-")
	return name
}
