// Package fault is for memory that may be taken away while it is used: the mapping of a file that somebody
// else may shorten, or whose disk may fail. The kernel answers an access with SIGBUS then, which ends a Go
// program that does nothing about it.
package fault

import (
	"runtime/debug"

	"xwarp/engine/guard"
)

// Error says that memory could not be accessed.
type Error struct{ Addr uintptr } // which Error does not tell: strangers may come to read it

func (e *Error) Error() string {
	return "memory cannot be accessed: the file behind it was shortened meanwhile, or its disk failed"
}

// Touch runs f, which accesses such memory, on the goroutine of the caller. It returns an Error when f touched memory
// that does not exist any more; the effects of f up to there remain. Other panics propagate.
func Touch(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard.Recover(func(v any) {
		at, ok := v.(interface{ Addr() uintptr })
		if !ok {
			panic(v)
		}
		err = &Error{at.Addr()}
	})
	f()
	return nil
}
