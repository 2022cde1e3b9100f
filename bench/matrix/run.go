// Package matrix runs the standard set of measurements, saves and plots its results, and checks them against earlier
// ones.
//
// A case is one topology with several variants. In every round each variant runs once, in an order that rotates from
// round to round. Ratios are taken within a round, so that a disturbance of the machine affects both sides of a ratio.
// The report has the median over all rounds with the smallest and the largest value.
package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/bench/relay"
	"xwarp/bench/topo"
)

// Config is the configuration of Run.
type Config struct {
	Rounds int // rounds of every case without its own number, which may add some; 0: DefaultRounds
	Cases  []Case
	Runner process.Runner
	Xwarpd string // path of the daemon, for cases with one
	// Command is the command line that is recorded in the results.
	Command string
	// Progress, when set, is called before each run with its number and the number of runs.
	Progress func(what string, i, n int)
}

// DefaultRounds is the default of Config.Rounds: the smallest number with a meaningful median and spread.
const DefaultRounds = 5

// Schema is the version of Results' layout.
const Schema = 1

// Results are the results of a run of the matrix.
type Results struct {
	Schema  int          `json:"schema"`
	Command string       `json:"command,omitempty"`
	Date    string       `json:"date"`
	Env     endpoint.Env `json:"environment"`
	Rounds  int          `json:"rounds"`
	Seconds float64      `json:"seconds"`
	Cases   []CaseResult `json:"cases"`
	Ratios  []Ratio      `json:"ratios"`
	// Failures name the cases that failed or were not finished, each with its error.
	Failures []string `json:"failures,omitempty"`
}

// CaseResult is the results of one case.
type CaseResult struct {
	Name     string          `json:"name"`
	Title    string          `json:"title"`
	MTU      int             `json:"mtu"`
	Metric   Metric          `json:"metric"`
	Variants []VariantResult `json:"variants"`
}

// VariantResult is the results of one variant: Values has one value for each round, in order.
type VariantResult struct {
	Name   string               `json:"name"`
	Spec   endpoint.Spec        `json:"spec"`
	Values map[Metric][]float64 `json:"values"`
	CDF    [][2]float64         `json:"cdf,omitempty"` // distribution of the latencies in the last round
	// Allocations and Collections are the maximum over all rounds and both processes.
	Allocations uint64   `json:"allocations"`
	Collections uint32   `json:"collections"`
	Failures    []string `json:"failures,omitempty"`
}

// Run measures all cases. If a variant fails in a round, its value there is missing and the error is kept. A case whose
// topology cannot be created is left out and named in Failures. Run returns an error only if ctx ends.
func Run(ctx context.Context, cfg Config) (*Results, error) {
	if cfg.Rounds == 0 {
		cfg.Rounds = DefaultRounds
	}
	start := time.Now()
	res := &Results{Schema: Schema, Command: cfg.Command, Date: start.UTC().Format(time.DateOnly),
		Env: cfg.Runner.Env, Rounds: cfg.Rounds}
	total, done := 0, 0
	for _, c := range cfg.Cases {
		total += c.rounds(&cfg) * len(c.Variants)
	}
	for i := range cfg.Cases {
		c := &cfg.Cases[i]
		r, err := runCase(ctx, &cfg, c, func(v *Variant) {
			done++
			if cfg.Progress != nil {
				cfg.Progress(c.Name+": "+v.Name, done, total)
			}
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			res.Failures = append(res.Failures, fmt.Sprintf("%s: %v", c.Name, err))
		}
		if r != nil {
			res.Cases = append(res.Cases, *r)
		}
	}
	res.Seconds = time.Since(start).Seconds()
	res.Ratios = ratios(res)
	return res, nil
}

func (c *Case) rounds(cfg *Config) int {
	if c.Rounds > 0 {
		return c.Rounds
	}
	return cfg.Rounds + c.More
}

// runCase makes the case's topology and runs all rounds in it. It calls step before each run of a variant.
func runCase(ctx context.Context, cfg *Config, c *Case, step func(*Variant)) (_ *CaseResult,
	err error) {
	opt := topo.Options{MTU: c.MTU, Relay: c.Path != nil}
	if c.Daemons { // an interface cannot be changed while a daemon uses it
		opt.OffloadsA, opt.OffloadsB = noOffloads, noOffloads
	}
	net, err := topo.New(opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	if c.Daemons {
		run := *cfg
		cfg = &run
		for i, h := range []*topo.Host{net.A, net.B} {
			d, err := process.StartDaemon(h, cfg.Xwarpd)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			cfg.Runner.Daemons[i] = d
		}
	}
	out := &CaseResult{Name: c.Name, Title: c.Title, MTU: c.MTU, Metric: c.Metric,
		Variants: make([]VariantResult, len(c.Variants))}
	for i := range c.Variants {
		v := &c.Variants[i]
		if err := v.Spec.Complete(); err != nil {
			return nil, err
		}
		out.Variants[i] = VariantResult{Name: v.Name, Spec: v.Spec, Values: map[Metric][]float64{}}
	}
	for round := range c.rounds(cfg) {
		for k := range c.Variants {
			i := (k + round) % len(c.Variants)
			step(&c.Variants[i])
			rep, err := runOne(ctx, cfg, net, c, &c.Variants[i], uint64(round))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			out.Variants[i].add(rep, err)
		}
	}
	return out, nil
}

// runOne measures one variant once. seed decides the relay's random choices.
func runOne(ctx context.Context, cfg *Config, net *topo.Net, c *Case, v *Variant, seed uint64) (
	*endpoint.Report, error) {
	for _, h := range []*topo.Host{net.A, net.B} {
		if c.Daemons {
			break
		}
		if err := h.SetOffloads(h.Link.Name, v.Offloads); err != nil {
			return nil, err
		}
	}
	if c.Path != nil {
		p := *c.Path
		p.Seed = seed
		r, err := relay.Start(net.Relay, p)
		if err != nil {
			return nil, err
		}
		defer r.Close()
	}
	if v.Beside != "" {
		d := cfg.Runner.Daemons
		stop, err := process.StartLoad(ctx, v.Beside, d[0], d[1], net.B.Addr4.Addr())
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	return cfg.Runner.Run(ctx, net, v.Spec, v.IPv6)
}

// Names of the files in a folder of results, which also has the plots.
const (
	FileJSON     = "results.json"
	FileMarkdown = "results.md"
)

// ModelDir returns the folder below parent for results of res's processor model. Each model has its own, because
// results of two models cannot be compared.
func (res *Results) ModelDir(parent string) string {
	return filepath.Join(parent, strings.Join(strings.FieldsFunc(strings.ToLower(res.Env.CPU),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-"))
}

// Save writes JSON, Markdown and plots into the folder ModelDir(dir).
func (res *Results) Save(dir string) error {
	dir = res.ModelDir(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	j, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, FileJSON), append(j, '\n'), 0o644); err != nil {
		return err
	}
	var md bytes.Buffer
	if err := res.WriteMarkdown(&md); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, FileMarkdown), md.Bytes(), 0o644); err != nil {
		return err
	}
	return res.Plots(dir)
}
