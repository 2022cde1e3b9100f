package config

import (
	"cmp"
	_ "embed" // the default file
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// DefaultPath is the default path of the configuration file.
const DefaultPath = "/etc/xwarp/xwarp.toml"

// Default is the commented default file.
//
//go:embed default.toml
var Default string

var defaultLine = regexp.MustCompile(`(?m)^[a-z_]+ = `)

// CommentedDefault is Default with every assignment commented out. A file made from it sets only the keys that its user
// changes. So config show --origin shows which keys were changed, and the other keys follow the defaults of new
// versions.
var CommentedDefault = defaultLine.ReplaceAllString(Default, "#$0")

// Origin is the origin of a value: "default", a file, an environment variable or a flag.
type Origin string

// OriginDefault is the origin of values that are not set.
const OriginDefault Origin = "default"

// Source describes the input of Load.
type Source struct {
	Path string   // of the file; empty: DefaultPath, which may be missing
	Env  []string // as os.Environ returns it
	Set  []string // key=value, as flags give them
	// Partial makes Load leave out exports with errors, if nothing else has errors. A reload sets it.
	Partial bool
}

// Loaded is a configuration that is complete and checked.
type Loaded struct {
	Config
	Path    string // "" when there is no file
	Origins map[string]Origin

	// Refused has the names of the exports left out because of Source.Partial, and RefusedBecause the errors.
	Refused        []string
	RefusedBecause error

	// Removed says for each removed key or value of the file what to do. None has an effect.
	Removed []string

	raw  map[string]any    // the decoded file, without defaults
	uids map[string]uint32 // the UIDs of [[user]] tables, by user name
}

// RequireInterface returns an error if the configuration has no [[interface]], since a daemon would then have nothing
// to serve.
func (l *Loaded) RequireInterface() error {
	if len(l.Interface) > 0 {
		return nil
	}
	return fmt.Errorf("no [[interface]] configured: add one to %s (example: xwarp config "+
		"default)", cmp.Or(l.Path, DefaultPath))
}

// Load reads the configuration. An error about a setting names it and its origin, such as the file, and often also the
// line and the remedy.
func Load(src Source) (*Loaded, error) {
	l := &Loaded{Origins: map[string]Origin{}}
	if _, err := toml.Decode(Default, &l.Config); err != nil {
		return nil, fmt.Errorf("the built-in defaults: %w", err)
	}
	path, text, err := readFile(src.Path)
	if err != nil {
		return nil, err
	}
	if path != "" {
		if err := l.file(path, text); err != nil {
			return nil, err
		}
	}
	l.Path = path
	if err := l.environment(src.Env); err != nil {
		return nil, err
	}
	for _, s := range src.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q: write key=value, such as daemon.log_level=debug", s)
		}
		if err := l.set(strings.TrimSpace(key), value, Origin("--set "+key)); err != nil {
			return nil, err
		}
	}
	l.complete()
	if err := l.check(src.Partial); err != nil {
		return nil, err
	}
	return l, nil
}

func readFile(path string) (name, text string, err error) {
	name = cmp.Or(path, DefaultPath)
	b, err := os.ReadFile(name)
	if path == "" && errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("%w (create it: xwarp config default > %s)", err, name)
	}
	if err != nil {
		return "", "", err
	}
	return name, string(b), nil
}

// removedKeys are keys of the previous release with the reason why they have no effect. They must not keep the daemon
// from starting after an upgrade. Delete an entry after one release.
var removedKeys = map[string]string{
	"interface.trust_partial_checksum": "xwarp completes such checksums itself",
	"export.in_place":                  "files are replaced as a whole; use serve = \"directory\"",
}

func (l *Loaded) file(path, text string) error {
	meta, err := toml.Decode(text, &l.Config)
	if err != nil {
		return fmt.Errorf("%s%w", path, decodeError(err))
	}
	toml.Decode(text, &l.raw) // cannot fail: the same text was decoded above
	var errs []error
	for _, k := range meta.Undecoded() {
		if unknownParent(meta.Undecoded(), k) {
			continue
		}
		if why, ok := removedKeys[k.String()]; ok {
			l.Removed = append(l.Removed, fmt.Sprintf("%s:%d: %s has no effect any more, delete "+
				"it: %s", path, lineOf(text, k), k, why))
			continue
		}
		errs = append(errs, fmt.Errorf("%s:%d: unknown key %q%s", path, lineOf(text, k), k.String(),
			suggest(k.String(), knownKeys())))
	}
	for i := range l.Interface {
		if way := &l.Interface[i].Transmit; *way == "xdp-live" {
			*way = "auto"
			l.Removed = append(l.Removed, path+`: interface.transmit = "xdp-live" now means "auto", `+
				"delete it: live frames were slower than blocks")
		}
	}
	for _, k := range meta.Keys() {
		l.Origins[k.String()] = Origin(path)
	}
	return errors.Join(errs...)
}

var (
	decoderError = regexp.MustCompile(`^toml: line (\d+) \(last key "([^"]*)"\): (.*)$`)
	wrongType    = regexp.MustCompile(`^incompatible types: TOML value has type (.*); destination has type (.*)$`)
	wrongPrefix  = regexp.MustCompile(`^netip\.ParsePrefix\((".*")\)`)
)

// decodeError rewrites an error of the decoder to name keys of the file instead of Go types.
func decodeError(err error) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Errorf(":%d: %s", parse.Position.Line, keyError(parse.LastKey, parse.Message))
	}
	if m := decoderError.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf(":%s: %s", m[1], keyError(m[2], m[3]))
	}
	return fmt.Errorf(": %w", err)
}

// keyError describes the error in the value of a key.
func keyError(key, message string) string {
	if m := wrongPrefix.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s = %s: write a prefix such as \"192.0.2.0/24\"", key, m[1])
	}
	m := wrongType.FindStringSubmatch(message)
	switch {
	case m == nil && key != "" && !strings.Contains(message, key):
		return key + ": " + message
	case m == nil:
		return message
	case strings.HasPrefix(m[1], "map[") && m[2] == "slice":
		return fmt.Sprintf("[%s] is an array of tables: write [[%s]]", key, key)
	}
	return fmt.Sprintf("%s must be of type %s, not %s", key, m[2], m[1])
}

// unknownParent reports whether the table of k is itself unknown, so that one message is enough.
func unknownParent(unknown []toml.Key, k toml.Key) bool {
	return slices.ContainsFunc(unknown, func(u toml.Key) bool {
		return len(u) < len(k) && strings.HasPrefix(k.String(), u.String()+".")
	})
}

// lineOf returns the number of the line that has k, which the decoder does not report. It returns 0 if it finds none.
func lineOf(text string, k toml.Key) int {
	table, last := "", k[len(k)-1]
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			table = strings.TrimRight(
				strings.Trim(strings.TrimSpace(strings.SplitN(line, "#", 2)[0]), "[]"), " ")
			if table == k.String() {
				return i + 1
			}
			continue
		}
		name, _, ok := strings.Cut(line, "=")
		if ok && strings.Trim(strings.TrimSpace(name), `"'`) == last &&
			table == strings.Join(k[:len(k)-1], ".") {
			return i + 1
		}
	}
	return 0
}
