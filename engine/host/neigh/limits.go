package neigh

import "time"

// MaxDestinations bounds the destinations followed, against a flood of SYNs with made-up sources: all
// workers' hops in the usual case. A connection whose destination was forgotten asks again when its segments
// are not acknowledged.
const MaxDestinations = 65536

// MaxRoutes bounds the routes that are remembered, against a program that connects to everybody: all are
// forgotten then.
const MaxRoutes = 1024

// HopAge is the time for which a next hop is neither requested nor confirmed again on behalf of other hosts behind it.
// It stops an attacker who makes up sources behind one gateway. The kernel reports changes meanwhile.
const HopAge = 500 * time.Millisecond

// RouteAge is how long a route is remembered, since the kernel tells nobody of the rules that choose it: as long as a
// next hop is before it is confirmed.
const RouteAge = 500 * time.Millisecond
