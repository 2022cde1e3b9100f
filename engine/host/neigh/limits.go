package neigh

// MaxDestinations bounds the destinations followed, against a flood of SYNs with made-up sources: all
// workers' hops in the usual case. A connection whose destination was forgotten asks again when its segments
// are not acknowledged.
const MaxDestinations = 65536
