// Package havoc runs a fuzzer's function over many changed inputs in one process and without counting what it covers,
// which is many times as fast as go test -fuzz: for when that has found its inputs, from which this one starts.
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
	seed = flag.Uint64("havoc.seed", 0, "of the changes; 0: another one each time")
)

// Fuzz is f.Fuzz(function). With -havoc, function is also run with changes of each input of the corpus, and what makes
// it fail is written below testdata/fuzz, as go test -fuzz does. Function must leave nothing in its *testing.T.
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
	inputs     [][]reflect.Value // of the corpus so far
	executions int
}

// input takes an input of the corpus: a *testing.T and what the function fuzzes.
func (h *havoc) input(args []reflect.Value) []reflect.Value {
	t := args[0].Interface().(*testing.T)
	h.inputs = append(h.inputs, args[1:])
	r := rand.New(rand.NewPCG(h.seed, uint64(len(h.inputs))))
	h.callRandomly(t, args)
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
			h.callRandomly(t, call)
		}
	}
	return nil
}

// callRandomly is one execution.
func (h *havoc) callRandomly(t *testing.T, args []reflect.Value) {
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
