// Package guard contains panics: a defect, or memory that is gone, ends one part of a program and not the program.
package guard

// Recover is deferred. After a panic it calls f with the value, and the function that deferred it returns. f panics
// with values that are not its own.
func Recover(f func(v any)) {
	if v := recover(); v != nil {
		f(v)
	}
}
