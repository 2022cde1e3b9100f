//go:build !cgo

package daemon_test

// usesCgo reports whether the test binary may have threads that the Go runtime does not know.
const usesCgo = false
