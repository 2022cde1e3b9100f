package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Tolerance is how much worse a ratio may be than the committed one before it counts as a regression. Ratios
// on a shared machine move by a tenth from run to run.
const Tolerance = 0.20

// ErrRegression is wrapped by the errors of Check.
var ErrRegression = errors.New("slower than the committed results")

// ErrProcessor is wrapped by the error of Check if the results come from different processor models.
var ErrProcessor = errors.New("results of another processor cannot be compared")

// Load reads results from a JSON file that Save wrote.
func Load(name string) (*Results, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: schema %d, this program has %d: measure again", name, r.Schema,
			Schema)
	}
	return r, nil
}

// Check compares the ratios of now that have a target with those of old. A ratio is a regression if its median is worse
// than old's by more than Tolerance, and its best round by more than half of Tolerance: one bad round is not enough.
// Check also reports failures, and allocations of the steady case.
func Check(now, old *Results) error {
	if err := now.SameProcessor(old); err != nil {
		return err
	}
	before := map[string]*Ratio{}
	for i := range old.Ratios {
		before[old.Ratios[i].Row] = &old.Ratios[i]
	}
	var errs []error
	for i := range now.Ratios {
		n := &now.Ratios[i]
		o := before[n.Row]
		if o == nil || o.Median == missing || o.Median == 0 || n.Want == 0 && n.Beyond == 0 {
			continue
		}
		if n.Median == missing {
			errs = append(errs, fmt.Errorf("%w: %s: was %s, could not be measured", ErrRegression,
				n.Row, number(o.Median)))
			continue
		}
		worse, best := o.Median/n.Median, o.Median/n.High
		if n.Small {
			worse, best = n.Median/o.Median, n.Low/o.Median
		}
		if worse > 1+Tolerance && best > 1+Tolerance/2 {
			errs = append(errs, fmt.Errorf("%w: %s: %s (%s – %s), was %s", ErrRegression, n.Row,
				number(n.Median), number(n.Low), number(n.High), number(o.Median)))
		}
	}
	for _, f := range now.Failures {
		errs = append(errs, fmt.Errorf("%w: not measured: %s", ErrRegression, f))
	}
	return errors.Join(append(errs, now.checkSteady())...)
}

// SameProcessor returns an error if res and old come from different processor models.
func (res *Results) SameProcessor(old *Results) error {
	if res.Env.CPU != old.Env.CPU {
		return fmt.Errorf("%w: this is %q, not %q", ErrProcessor, res.Env.CPU, old.Env.CPU)
	}
	return nil
}

// Limits of the steady case. The data path does not allocate. But once a second each end looks at the queues and the
// XDP program of its interface (110 allocations a second were measured for both ends), and timers and the neighbour
// table allocate now and then. A single collection may be due to what was allocated before.
const (
	framesPerAllocation  = 10_000
	allocationsPerSecond = 150
	maxCollections       = 1
)

// checkSteady returns an error if the steady case made more garbage collections or allocations than allowed.
func (res *Results) checkSteady() error {
	for _, v := range res.variants(steadyName) {
		seconds := v.Spec.Duration.Seconds()
		frames := median(v.Values[Frames]) * seconds
		allowed := frames/framesPerAllocation + allocationsPerSecond*seconds
		if v.Collections > maxCollections || frames > 0 && float64(v.Allocations) > allowed {
			return fmt.Errorf("%w: %s: %d allocations and %d garbage collections in %.0f frames, "+
				"want at most %.0f and %d", ErrRegression, steadyCase().Title, v.Allocations,
				v.Collections, frames, allowed, maxCollections)
		}
	}
	return nil
}
