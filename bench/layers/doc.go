// Package layers measures what one segment costs in each layer, without any network: nanoseconds and allocations.
//
// The parts are measured alone with everything in the cache; the whole paths run two engines on fake rings,
// and only the time inside the engine counts. What the kernel does for a frame is not in these figures.
package layers
