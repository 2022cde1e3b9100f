package main

import (
	"fmt"

	"xwarp/engine/plain"
)

// size is a flag of a number of bytes with a unit: 64MiB, 1GiB, 1500, 10MB.
type size int64

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	n, err := plain.ParseSize(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is not above 0", text)
	}
	*s = size(n)
	return err
}

// String implements pflag.Value.
func (s *size) String() string { return plain.ExactSize(int64(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }
