package script

import (
	"fmt"
	"strconv"
	"strings"
)

// value is a number in a script. The zero value stands for an unnamed field.
type value struct {
	set, any bool
	name     string // name of a variable, to which lo and hi are added
	lo, hi   int
}

// parseValue reads *, 5, -5, 5..9, edge, edge+1 or nxt-1000.
func parseValue(s string) (value, error) {
	v := value{set: true}
	if s == "*" {
		v.any = true
		return v, nil
	}
	rest := strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz")
	v.name = s[:len(s)-len(rest)]
	if v.name != "" && rest == "" {
		return v, nil
	}
	lo, hi, isRange := strings.Cut(rest, "..")
	var err error
	if v.lo, err = strconv.Atoi(lo); err != nil {
		return v, fmt.Errorf("%q is not a number, a range, a variable or *", s)
	}
	v.hi = v.lo
	if isRange {
		if v.hi, err = strconv.Atoi(hi); err != nil || v.hi < v.lo {
			return v, fmt.Errorf("%q is not a range", s)
		}
	}
	return v, nil
}

// vars are the variables of a connection.
type vars map[string]int

// at returns the number that v stands for in a segment to send.
func (v value) at(x vars) (int, error) {
	switch base, known := x[v.name]; {
	case v.any || v.lo != v.hi:
		return 0, fmt.Errorf("a single number is needed to send")
	case v.name != "" && !known:
		return 0, fmt.Errorf("variable %q has no value yet", v.name)
	default:
		return base + v.lo, nil
	}
}

// matches reports whether v permits n. An unnamed v permits any.
func (v value) matches(n int, x vars) bool {
	if !v.set || v.any {
		return true
	}
	n -= x[v.name]
	return v.lo <= n && n <= v.hi
}

func (v value) String() string {
	switch {
	case v.any:
		return "*"
	case v.lo != v.hi:
		return fmt.Sprintf("%s%d..%d", v.name, v.lo, v.hi)
	case v.name != "" && v.lo == 0:
		return v.name
	case v.name != "":
		return fmt.Sprintf("%s%+d", v.name, v.lo)
	}
	return strconv.Itoa(v.lo)
}

// span is a range of sequence numbers, such as 1:1001. Without a colon, start and end are equal.
type span struct{ start, end value }

func parseSpan(s string) (p span, err error) {
	a, b, two := strings.Cut(s, ":")
	if p.start, err = parseValue(a); err != nil {
		return p, err
	}
	p.end = p.start
	if two {
		p.end, err = parseValue(b)
	}
	return p, err
}
