package ipsec

import (
	"maps"
	"net/netip"
	"testing"
)

func TestProtected(t *testing.T) {
	prefix := netip.MustParsePrefix
	in := func(list ...string) (r Rule) {
		for _, s := range list {
			r.Remote = append(r.Remote, prefix(s))
		}
		return r
	}
	off := func(r Rule) Rule { r.Clear = true; return r }
	port := func(r Rule) Rule { r.Ports = []uint16{7}; return r }
	for _, c := range []struct {
		name  string
		rules []Rule
		want  map[string]bool
	}{
		{"no rules", nil, nil},
		{"all in the clear", []Rule{off(in())}, nil},
		{"everything", []Rule{in()}, map[string]bool{"0.0.0.0/0": true, "::/0": true}},
		{"one port", []Rule{port(in())}, nil},
		{"a network", []Rule{in("192.0.2.9/24")},
			map[string]bool{"0.0.0.0/0": false, "::/0": false, "192.0.2.0/24": true}},
		{"an exception", []Rule{off(in("192.0.2.7/32")), in("192.0.2.0/24", "2001:db8::/32")},
			map[string]bool{"0.0.0.0/0": false, "::/0": false, "192.0.2.7/32": false,
				"192.0.2.0/24": true, "2001:db8::/32": true}},
		{"a shorter prefix first", []Rule{in("192.0.2.0/24"), off(in("192.0.2.7/32"))},
			map[string]bool{"0.0.0.0/0": false, "::/0": false, "192.0.2.7/32": true,
				"192.0.2.0/24": true}},
		{"a port first", []Rule{port(off(in("192.0.2.7/32"))), in()},
			map[string]bool{"0.0.0.0/0": true, "::/0": true, "192.0.2.7/32": false}},
	} {
		want := map[netip.Prefix]bool{}
		for p, v := range c.want {
			want[prefix(p)] = v
		}
		if got := Protected(c.rules); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
