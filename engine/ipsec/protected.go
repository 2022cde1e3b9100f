package ipsec

import "net/netip"

// Protected returns the prefixes of peers of which every connection must be protected: true, or need not be: false.
// The longest prefix that holds an address counts. Rules for some ports are left to the Stack, which knows them.
func Protected(rules []Rule) map[netip.Prefix]bool {
	prefixes := map[netip.Prefix]bool{
		netip.MustParsePrefix("0.0.0.0/0"): false, netip.MustParsePrefix("::/0"): false}
	for i := range rules {
		for _, p := range rules[i].Remote {
			prefixes[p.Masked()] = false
		}
	}
	any := false
	for p := range prefixes {
		for i := range rules {
			if r := &rules[i]; r.holds(p) {
				prefixes[p] = !r.Clear && len(r.Ports) == 0
				break
			}
		}
		any = any || prefixes[p]
	}
	if !any {
		return nil
	}
	return prefixes
}

// holds reports whether r is for all addresses of p.
func (r *Rule) holds(p netip.Prefix) bool {
	for _, q := range r.Remote {
		if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return true
		}
	}
	return len(r.Remote) == 0
}
