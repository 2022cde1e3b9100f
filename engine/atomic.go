package engine

import "sync/atomic"

// compareAndSwap makes RFC 7306 atomics atomic against other workers and against consumers that use sync/atomic.
func compareAndSwap(addr *uint64, old, new uint64) bool {
	return atomic.CompareAndSwapUint64(addr, old, new)
}
