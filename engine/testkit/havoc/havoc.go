// Package havoc runs a fuzz function on many mutated inputs in one process and without coverage, many times faster than
// go test -fuzz. It starts from the inputs that go test -fuzz has found.
package havoc

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

var (
	each = flag.Duration("havoc", 0, "how long [Fuzz] changes each input; 0: fuzz as go test does")
	seed = flag.Uint64("havoc.seed", 0, "seed of the mutations; 0: a random one")
)

// Fuzz is f.Fuzz(function). With -havoc, it also runs function with mutations of each input of the corpus, and writes
// failing inputs below testdata/fuzz, like go test -fuzz. All executions for an input share one *testing.T, so function
// must not register cleanups in it.
func Fuzz(f *testing.F, function any) {
	f.Helper()
	if *each == 0 {
		f.Fuzz(function)
		return
	}
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	h := &havoc{name: f.Name(), function: reflect.ValueOf(function), seed: s}
	f.Fuzz(reflect.MakeFunc(h.function.Type(), h.input).Interface())
	fmt.Printf("havoc: %s: %d executions from %d inputs, seed %d\n",
		h.name, h.executions, len(h.inputs), s)
}

// havoc is a run of one fuzzer.
type havoc struct {
	name       string
	function   reflect.Value
	seed       uint64
	inputs     [][]reflect.Value // the corpus so far
	executions int
}

// input takes an input of the corpus: a *testing.T and the fuzz arguments. It runs the function with the input, then
// with mutations of it.
func (h *havoc) input(args []reflect.Value) []reflect.Value {
	t := args[0].Interface().(*testing.T)
	h.inputs = append(h.inputs, args[1:])
	r := rand.New(rand.NewPCG(h.seed, uint64(len(h.inputs))))
	h.execute(t, args)
	call := make([]reflect.Value, len(args))
	for end := time.Now().Add(*each); time.Now().Before(end); {
		for range 16 {
			call[0] = args[0]
			for i, v := range args[1:] {
				call[i+1] = v
				if len(args) == 2 || r.IntN(2) == 0 {
					other := h.inputs[r.IntN(len(h.inputs))][i]
					call[i+1] = change(r, v, other)
				}
			}
			h.execute(t, call)
		}
	}
	return nil
}

// execute runs the function once with args. If the function fails, execute writes args to the corpus.
func (h *havoc) execute(t *testing.T, args []reflect.Value) {
	h.executions++
	whole := false
	defer func() {
		if !whole || t.Failed() {
			t.Logf("havoc: execution %d; %s", h.executions, write(h.name, args[1:]))
		}
	}()
	h.function.Call(args)
	whole = true
}
