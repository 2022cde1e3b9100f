package script

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"xwarp/tcp/tick"
)

// Script is one run: a script of a file with the values of one row of its table.
type Script struct {
	Name  string
	Title string // the RFC section and its text
	File  string
	Line  int

	settings settings
	steps    []step
}

// OursOnly reports whether s must not run against the kernel.
func (s *Script) OursOnly() bool { return s.settings.OursOnly }

// step is one line, after macro expansion.
type step struct {
	line  int // in the file of the script; for a step of a macro, the line that uses the macro
	text  string
	timed bool
	after [2]tick.Duration // minimum and maximum time since the previous step
	flow  int
	verb  string
	args  []string
	pkt   *packet
}

// source is one line of a file.
type source struct {
	n    int
	text string
}

type macro []source

// maxDepth limits the nesting of macros.
const maxDepth = 8

// Load parses every .pkt file of fsys. Macros are shared by all files.
func Load(fsys fs.FS) ([]Script, error) {
	names, err := fs.Glob(fsys, "*.pkt")
	if err != nil {
		return nil, err
	}
	l := loader{macros: map[string]macro{}, seen: map[string]string{}}
	for _, n := range names {
		b, err := fs.ReadFile(fsys, n)
		if err != nil {
			return nil, err
		}
		if err := l.file(n, string(b)); err != nil {
			return nil, fmt.Errorf("%s:%w", n, err)
		}
	}
	for i := range l.blocks {
		if err := l.expand(&l.blocks[i]); err != nil {
			return nil, fmt.Errorf("%s:%w", l.blocks[i].file, err)
		}
	}
	return l.scripts, nil
}

// block is a script before its table is applied.
type block struct {
	file, name, title string
	line              int
	keys              []string
	rows              [][]string
	body              []source
}

type loader struct {
	macros  map[string]macro
	blocks  []block
	scripts []Script
	seen    map[string]string
}

// file splits a file into macros and blocks.
func (l *loader) file(name, text string) error {
	var title []string
	var def string
	var b *block
	for i, raw := range strings.Split(text, "\n") {
		line := strings.TrimSpace(raw)
		if strings.HasPrefix(line, "#req:") { // for scripts/reqs
			continue
		}
		if strings.HasPrefix(line, "#") {
			title = append(title, strings.TrimSpace(line[1:]))
			continue
		}
		if c := strings.Index(line, " #"); c >= 0 {
			line = strings.TrimSpace(line[:c])
		}
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case line == "":
		case word == "def":
			def, b = rest, nil
			if _, twice := l.macros[def]; twice || def == "" {
				return fmt.Errorf("%d: macro %q has no name, or a name that is taken", i+1, def)
			}
			l.macros[def] = macro{}
		case word == "script":
			if len(title) == 0 || !strings.Contains(strings.Join(title, " "), "RFC ") ||
				rest == "" {
				return fmt.Errorf(
					"%d: a script needs a name, and a comment above it that names the RFC", i+1)
			}
			l.blocks = append(l.blocks, block{file: name, name: rest, title: strings.Join(title,
				" "), line: i + 1})
			b, def = &l.blocks[len(l.blocks)-1], ""
		case b != nil && word == "for":
			if err := b.table(rest); err != nil {
				return fmt.Errorf("%d: %w", i+1, err)
			}
		case b != nil:
			b.body = append(b.body, source{i + 1, line})
		case def != "":
			l.macros[def] = append(l.macros[def], source{i + 1, line})
		default:
			return fmt.Errorf("%d: outside of a script", i+1)
		}
		title = title[:0]
	}
	return nil
}

// table reads "a,b : 1,2 3,4": two runs, with $a = 1 and 3. A second line adds rows.
func (b *block) table(s string) error {
	keys, rows, ok := strings.Cut(s, ":")
	k := strings.Split(strings.TrimSpace(keys), ",")
	if !ok || b.keys != nil && !slices.Equal(k, b.keys) {
		return fmt.Errorf("for: want names, a colon and rows, the same names each time")
	}
	b.keys = k
	for _, r := range strings.Fields(rows) {
		row := strings.Split(r, ",")
		if len(row) != len(k) {
			return fmt.Errorf("for: row %q has %d values, not %d", r, len(row), len(k))
		}
		b.rows = append(b.rows, row)
	}
	return nil
}

// expand creates a script for each row.
func (l *loader) expand(b *block) error {
	rows := b.rows
	if b.keys == nil {
		rows = [][]string{nil}
	}
	for _, row := range rows {
		var pairs []string
		for i, k := range b.keys {
			pairs = append(pairs, "$"+k, row[i])
		}
		r := strings.NewReplacer(pairs...)
		s := Script{Name: r.Replace(b.name), Title: r.Replace(b.title), File: b.file, Line: b.line}
		if at, twice := l.seen[s.Name]; twice {
			return fmt.Errorf("%d: script %s exists already in %s", b.line, s.Name, at)
		}
		l.seen[s.Name] = b.file
		for _, src := range b.body {
			if err := l.line(&s, src.n, r.Replace(src.text), 0); err != nil {
				return fmt.Errorf("%d: %s: %w", src.n, s.Name, err)
			}
		}
		l.scripts = append(l.scripts, s)
	}
	return nil
}

// line appends a step, a setting or the steps of a macro.
func (l *loader) line(s *Script, n int, text string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("macros are nested too deeply")
	}
	words := strings.Fields(text)
	if words[0] == "use" {
		for _, w := range words[1:] {
			if err := s.settings.apply(w); err != nil {
				return err
			}
		}
		return nil
	}
	if m, ok := l.macros[words[0]]; ok {
		for _, src := range m {
			t := src.text
			for i, a := range words[1:] {
				t = strings.ReplaceAll(t, fmt.Sprintf("$%d", i+1), a)
			}
			if err := l.line(s, n, t, depth+1); err != nil {
				return fmt.Errorf("in macro %s: %w", words[0], err)
			}
		}
		return nil
	}
	st, err := parseStep(words)
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	st.line, st.text = n, text
	s.steps = append(s.steps, st)
	return nil
}

// parseStep reads "[+time] [@flow] verb args".
func parseStep(words []string) (s step, err error) {
	s.flow = 1
	for len(words) > 0 && (words[0][0] == '+' || words[0][0] == '@') {
		w := words[0][1:]
		if words[0][0] == '@' {
			if _, err := fmt.Sscanf(w, "%d", &s.flow); err != nil {
				return s, fmt.Errorf("%q is not a connection", words[0])
			}
		} else {
			s.timed = true
			lo, hi, isRange := strings.Cut(w, "..")
			if s.after[0], err = parseDuration(lo); err != nil {
				return s, err
			}
			s.after[1] = s.after[0]
			if isRange {
				if s.after[1], err = parseDuration(hi); err != nil {
					return s, err
				}
			}
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return s, fmt.Errorf("nothing to do")
	}
	s.verb, s.args = words[0], words[1:]
	switch s.verb {
	case "<", ">", ">?", ">*":
		s.pkt, err = parsePacket(s.args)
	default:
		err = checkVerb(s.verb, len(s.args))
	}
	return s, err
}

// verbs are the steps that are not segments, with the minimum and maximum number of words that follow.
var verbs = map[string][2]int{
	"listen": {0, 1}, "accept": {0, 1}, "connect": {0, 1}, "write": {1, 2}, "read": {1, 1},
	"shutdown": {1, 1}, "close": {0, 0},
	"abort": {0, 0}, "set": {2, 2}, "state": {1, 1}, "error": {1, 1}, "info": {2, 2},
	"quiet": {1, 1}, "drain": {0, 0},
	"isn": {1, 1}, "fill": {0, 1}, "icmp": {3, 5},
}

func checkVerb(v string, args int) error {
	n, ok := verbs[v]
	if !ok {
		return fmt.Errorf("%q is not a step", v)
	}
	if args < n[0] || args > n[1] {
		return fmt.Errorf("%s: %d words follow, want %d to %d", v, args, n[0], n[1])
	}
	return nil
}
