// Package tally sums the counters of objects that are created and closed.
package tally

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Sum is the sum of the counters of many objects. T is a struct whose fields are uint64 or such structs. Only one
// goroutine may use a Sum.
type Sum[T any] struct {
	total T
}

// Counted holds the counters of one object that a Sum already contains.
type Counted[T any] struct {
	seen T
}

// Add adds the increase of an object's counters since the last call with the same Counted. Counters must not decrease.
// Call Add at any time while the object exists, and once more after it has ended.
func (s *Sum[T]) Add(c *Counted[T], now *T) {
	total, seen, n := words(&s.total), words(&c.seen), words(now)
	for i, v := range n {
		total[i] += v - seen[i]
		seen[i] = v
	}
}

// Total returns the sum.
func (s *Sum[T]) Total() T { return s.total }

// Join returns a struct whose counters are the sums of those of a and b.
func Join[T any](a, b T) T {
	x, y := words(&a), words(&b)
	for i := range x {
		x[i] += y[i]
	}
	return a
}

// words returns the memory of *v: all fields, including those of inner structs.
func words[T any](v *T) []uint64 {
	const size = unsafe.Sizeof(uint64(0))
	return unsafe.Slice((*uint64)(unsafe.Pointer(v)), unsafe.Sizeof(*v)/size)
}

// Check returns an error unless T is a struct of counters. A test must call it for each T of a Sum.
func Check[T any]() error { return check(reflect.TypeFor[T]()) }

func check(t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%v is not a struct", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Kind() == reflect.Uint64 {
			continue
		}
		if err := check(f.Type); err != nil {
			return fmt.Errorf("%v.%s is not a uint64: %w", t, f.Name, err)
		}
	}
	return nil
}
