package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Every key has a name such as "daemon.socket". Keys of a table in double brackets are named the same way, such as
// "interface.mtu", and can be set only in the file.

// knownKeys returns the names of all keys and tables.
func knownKeys() []string {
	var names []string
	for table := range reflect.TypeFor[Config]().Fields() {
		names = append(names, keysOf(key(table), table.Type)...)
	}
	return names
}

// keysOf returns the name of a table and those of its keys.
func keysOf(name string, t reflect.Type) []string {
	names := []string{name}
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for f := range t.Fields() {
		if isTables(f.Type) {
			names = append(names, keysOf(name+"."+key(f), f.Type)...)
		} else {
			names = append(names, name+"."+key(f))
		}
	}
	return names
}

// isTables reports whether t is the type of a key that is a list of tables within another table.
func isTables(t reflect.Type) bool { return t == reflect.TypeFor[[]IPsec]() }

func key(f reflect.StructField) string { return f.Tag.Get("toml") }

func reloads(f reflect.StructField) bool { return f.Tag.Get("reload") == "yes" }

// scalar is a key of a table in single brackets, with its value.
type scalar struct {
	name   string
	value  reflect.Value
	reload bool
}

// scalars returns the keys that flags and the environment can set.
func (c *Config) scalars() []scalar {
	var list []scalar
	for name, table := range reflect.ValueOf(c).Elem().Fields() {
		if table.Kind() != reflect.Struct {
			continue
		}
		for f, v := range table.Fields() {
			list = append(list, scalar{key(name) + "." + key(f), v, reloads(f)})
		}
	}
	return list
}

// EnvName returns the environment variable of a key.
func EnvName(key string) string {
	return "XWARP_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environment sets the keys for which env has a variable. A variable with the prefix of a table, such as XWARP_MPA_,
// that names no key is an error.
func (l *Loaded) environment(env []string) error {
	keys := map[string]string{} // by variable
	for _, s := range l.scalars() {
		keys[EnvName(s.name)] = s.name
	}
	for _, v := range env {
		name, text, _ := strings.Cut(v, "=")
		if key := keys[name]; key != "" {
			if err := l.set(key, text, Origin("$"+name)); err != nil {
				return err
			}
			continue
		}
		for table := range reflect.TypeFor[Config]().Fields() {
			if strings.HasPrefix(name, EnvName(key(table))+"_") {
				return fmt.Errorf("$%s: no such key%s", name,
					suggest(name, slices.Collect(maps.Keys(keys))))
			}
		}
	}
	return nil
}

func (l *Loaded) set(key, text string, from Origin) error {
	list := l.scalars()
	i := slices.IndexFunc(list, func(s scalar) bool { return s.name == key })
	if i < 0 {
		names := make([]string, len(list))
		for i, s := range list {
			names[i] = s.name
		}
		return fmt.Errorf("%s: unknown key %q%s", from, key, suggest(key, names))
	}
	if n := len(text); n > 1 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return fmt.Errorf("%s: remove the quotes around %s: write %s", from, text,
			text[1:n-1])
	}
	if err := setValue(list[i].value, text); err != nil {
		if !strings.HasSuffix(string(from), key) {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return fmt.Errorf("%s: %w", from, err)
	}
	l.Origins[key] = from
	return nil
}

func setValue(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetInt(int64(n))
	case reflect.Slice:
		var words []string
		for _, w := range strings.Split(text, ",") {
			if w = strings.TrimSpace(w); w != "" {
				words = append(words, w)
			}
		}
		v.Set(reflect.ValueOf(words))
	default:
		return fmt.Errorf("a key of kind %v cannot be set here", v.Kind())
	}
	return nil
}

// suggest returns a hint for an unknown key: the most similar known key, or the command that lists all keys.
func suggest(key string, known []string) string {
	return cmp.Or(alike(key, known), " (see: xwarp config default)")
}

// alike returns the question whether the known word most similar to key was meant, or "" if none is similar.
func alike(key string, known []string) string {
	best, least := "", len(key)/3+2
	for _, k := range known {
		d := distance(key, k)
		// The right key in the wrong table is similar, too.
		if last(k) == last(key) {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

func last(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// distance returns the minimum number of insertions, deletions and replacements of bytes that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Value is a key of the configuration with its value as text.
type Value struct {
	Key    string
	Value  string // in the syntax of the file
	Origin Origin
	Reload bool // a reload applies a changed value
}

// Values returns all keys: first those of tables in single brackets, then those of tables in double brackets.
func (l *Loaded) Values() []Value {
	var list []Value
	for _, s := range l.scalars() {
		list = append(list, Value{s.name, show(s.value), cmp.Or(l.Origins[s.name], OriginDefault),
			s.reload})
	}
	for name, table := range reflect.ValueOf(l.Config).Fields() {
		if table.Kind() == reflect.Slice {
			name := key(name)
			list = append(list, l.entries(name, table, l.raw[name], name != "interface")...)
		}
	}
	return list
}

// entries returns the keys of a list of tables. given has the tables as in the file, without defaults. With reload, a
// reload applies every key; otherwise only keys with a reload tag.
func (l *Loaded) entries(name string, tables reflect.Value, given any, reload bool) (list []Value) {
	raw, _ := given.([]map[string]any)
	for n := range tables.Len() {
		var one map[string]any
		if n < len(raw) {
			one = raw[n]
		}
		key := fmt.Sprintf("%s[%d]", name, n)
		list = append(list, l.entry(key, tables.Index(n), one, reload)...)
	}
	return list
}

func (l *Loaded) entry(name string, v reflect.Value, given map[string]any, reload bool) (
	list []Value) {
	for f, v := range v.Fields() {
		if v.Kind() == reflect.Pointer && v.IsNil() {
			continue
		}
		if isTables(v.Type()) {
			list = append(list, l.entries(name+"."+key(f), v, given[key(f)], false)...)
			continue
		}
		origin := OriginDefault
		if _, ok := given[key(f)]; ok {
			origin = Origin(l.Path)
		}
		list = append(list, Value{
			Key: name + "." + key(f), Value: show(reflect.Indirect(v)),
			Origin: origin, Reload: reload || reloads(f),
		})
	}
	return list
}

func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case fmt.Stringer:
		return strconv.Quote(x.String())
	case Hex:
		return fmt.Sprintf("%#x", uint32(x))
	}
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(v.String())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = show(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// KeysNeedingRestart returns the keys that differ between l and now and need a restart. It returns "interface" for any
// such change in the [[interface]] tables.
func (l *Loaded) KeysNeedingRestart(now *Loaded) (keys []string) {
	old := l.scalars()
	for i, s := range now.scalars() {
		if !s.reload && !reflect.DeepEqual(s.value.Interface(), old[i].value.Interface()) {
			keys = append(keys, s.name)
		}
	}
	if !reflect.DeepEqual(fixed(l.Interface), fixed(now.Interface)) {
		keys = append(keys, "interface")
	}
	return keys
}

// fixed returns list without the keys that a reload applies.
func fixed(list []Interface) []Interface {
	list = slices.Clone(list)
	for i := range list {
		list[i].Allow = nil
		list[i].IPsec = list[i].fixedIPsec()
	}
	return list
}
