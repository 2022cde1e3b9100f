package neigh

import "time"

// MaxDestinations is the maximum number of followed destinations. It limits the memory that a flood of SYNs with forged
// sources uses. Without a flood, the workers request only the destinations of their connections. A connection whose
// destination was forgotten asks again when its segments are not acknowledged.
const MaxDestinations = 65536

// MaxRoutes is the maximum number of cached routes. It limits the memory that a program uses by connecting to many
// addresses. At the limit all cached routes are dropped.
const MaxRoutes = 1024

// HopAge is how long the answer for a next hop serves other hosts behind it, without another request to the kernel. It
// limits the requests that an attacker causes by forging sources behind one gateway. The kernel still reports changes.
const HopAge = 500 * time.Millisecond

// RouteAge is how long a route is cached. A route must expire because the kernel does not announce changes of routing
// rules. RouteAge equals HopAge.
const RouteAge = 500 * time.Millisecond
