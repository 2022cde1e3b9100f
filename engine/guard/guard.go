// Package guard contains panics: a defect or lost memory ends one part of a program, not the whole program.
package guard

// Recover is deferred. After a panic it calls f with the value, and the function that deferred it returns. f must panic
// again with values that it does not handle.
func Recover(f func(v any)) {
	if v := recover(); v != nil {
		f(v)
	}
}
