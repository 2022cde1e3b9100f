// Package tally sums up the counters of objects that come and go.
package tally

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Sum is the sum of what objects counted. T is a struct of counters, whose fields are uint64 or structs of such.
// A Sum is for one goroutine.
type Sum[T any] struct {
	total T
}

// Counted has the counters of one object that are in a Sum.
type Counted[T any] struct {
	seen T
}

// Add adds what an object counted since the last call with the same Counted. Counters never fall; each
// object is added at any time while it lives, and once more when it has ended.
func (s *Sum[T]) Add(c *Counted[T], now *T) {
	total, seen, n := words(&s.total), words(&c.seen), words(now)
	for i, v := range n {
		total[i] += v - seen[i]
		seen[i] = v
	}
}

// Total returns the sum.
func (s *Sum[T]) Total() T { return s.total }

// Join returns the sum of two structs of counters.
func Join[T any](a, b T) T {
	x, y := words(&a), words(&b)
	for i := range x {
		x[i] += y[i]
	}
	return a
}

// words are the fields of *v.
func words[T any](v *T) []uint64 {
	const size = unsafe.Sizeof(uint64(0))
	return unsafe.Slice((*uint64)(unsafe.Pointer(v)), unsafe.Sizeof(*v)/size)
}

// Check returns an error unless T is a struct of counters. The tests of packages with a Sum call it.
func Check[T any]() error { return check(reflect.TypeFor[T]()) }

func check(t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%v is no struct", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Kind() == reflect.Uint64 {
			continue
		}
		if err := check(f.Type); err != nil {
			return fmt.Errorf("%v.%s is no uint64: %w", t, f.Name, err)
		}
	}
	return nil
}
