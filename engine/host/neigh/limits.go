package neigh

import "time"

// MaxDestinations limits the followed destinations, to stop a flood of SYNs with forged sources: normally the hops of
// all workers. A connection whose destination was forgotten asks again when its segments are not acknowledged.
const MaxDestinations = 65536

// MaxRoutes limits the cached routes, to stop a program that connects to many addresses. At the limit all are dropped.
const MaxRoutes = 1024

// HopAge is the time during which a next hop is not requested or confirmed again for other hosts behind it. It stops an
// attacker who forges sources behind one gateway. The kernel still reports changes.
const HopAge = 500 * time.Millisecond

// RouteAge is how long a route is cached, since the kernel does not announce changes of routing rules: as long as a
// next hop stays unconfirmed.
const RouteAge = 500 * time.Millisecond
