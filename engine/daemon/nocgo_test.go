//go:build !cgo

package daemon_test

// usesCgo says that the test binary may have threads that Go's runtime does not know.
const usesCgo = false
