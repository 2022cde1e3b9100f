// Package wake has the flag by which one goroutine wakes another.
package wake

// Flag wakes the goroutine that receives from it.
type Flag chan struct{}

// New returns a flag that is not set.
func New() Flag { return make(Flag, 1) }

// Set sets the flag until a goroutine receives from it. It does not block.
func (f Flag) Set() {
	select {
	case f <- struct{}{}:
	default:
	}
}
