package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"

	"xwarp/bench/relay/impair"
	"xwarp/tcp/tick"
)

const (
	us = tick.Microsecond
	ms = tick.Millisecond
	// settleTime is how long after the last fault everything must have ended. It covers a few retransmission timeouts,
	// each backed off to the duration of the fault, the timeouts of close and start-up, and TIME-WAIT.
	settleTime = 150 * tick.Second
	// workTime is the same if no fault excuses a failed connection. Whatever takes longer has stalled.
	workTime = 75 * tick.Second
)

// scenario is one run, fully determined by its seed.
type scenario struct {
	seed     uint64
	rnd      *rand.Rand
	world    *World
	hosts    []*Host
	paths    []*badPath // from each host to the switch
	base     []impair.Config
	judge    *judge
	loads    []workload
	text     []string // drawn parameters, for messages
	pause    tick.Duration
	until    tick.Duration // time after Epoch at which the faults stop
	cuts     bool          // the path MTU changes
	swallows bool          // the path drops packets that are too long, without an ICMP error
	loses    bool          // the path drops segments at random
	recut    bool          // a middlebox cuts segments
	severe   bool          // connections may end with an error
	spoils   bool          // the path may change bytes without TCP noticing
	state    []impair.Config
	rebooted bool          // a host rebooted: earlier connections may end with an error
	redial   func(h *Host) // restores the listeners and apps of h
	audits   int
	overAt   tick.Time // when every workload had ended, 0 before

	adapt func(s *scenario, cfg *HostConfig) // changes the drawn configuration of a host; may be nil

	left  map[string]bool // features left out, to find the cause of a failure
	tried []string        // features that were drawn, or left out
	wide  *wide           // nil for a scenario of draw, which is not wide
}

func (s *scenario) say(format string, args ...any) {
	s.text = append(s.text, fmt.Sprintf(format, args...))
}

func (s *scenario) String() string { return strings.Join(s.text, "\n    ") }

// brief formats like %+v, without zero fields.
func brief(v any) string { return briefValue(reflect.ValueOf(v)) }

func briefValue(r reflect.Value) string {
	var b []string
	for i := range r.NumField() {
		f := r.Field(i)
		switch {
		case f.IsZero():
		case f.Kind() == reflect.Struct:
			b = append(b, r.Type().Field(i).Name+":"+briefValue(f))
		default:
			b = append(b, fmt.Sprintf("%s:%v", r.Type().Field(i).Name, f))
		}
	}
	return "{" + strings.Join(b, " ") + "}"
}

// mayFail reports whether the faults excuse a connection that ends with an error.
func (s *scenario) mayFail() bool { return s.severe || s.rebooted }

func (s *scenario) one(n int) bool { return s.rnd.IntN(n) == 0 }

func pick[T any](r *rand.Rand, v ...T) T { return v[r.IntN(len(v))] }

// draw creates the scenario of a seed without the features left out.
func draw(seed uint64, left map[string]bool,
	adapt func(s *scenario, cfg *HostConfig)) *scenario {
	s := &scenario{seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), world: NewWorld(seed),
		judge: newJudge(), adapt: adapt, left: left}
	s.pause = pick(s.rnd, 0, 0, ms, 300*ms)
	s.until = s.shorter(tick.Duration(s.rnd.Int64N(int64(2 * tick.Second))))
	mtu := pick(s.rnd, 1500, 1500, 1500, 9000, 1280)
	s.network(mtu)
	s.faults(mtu)
	switch k := s.rnd.IntN(20); {
	case k < 11:
		s.rdma(mtu)
	case k < 16:
		s.stream(1)
	default:
		s.stream(2 + s.rnd.IntN(12))
	}
	s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
		if d == Out {
			s.judge.see(frame, now)
		}
	}
	s.world.Check = s.check
	return s
}

// check runs after each instant.
func (s *scenario) check(now tick.Time) error {
	if s.judge.err != nil {
		return s.judge.err
	}
	s.audits++
	if s.audits%16 == 0 {
		for _, h := range s.hosts {
			if err := h.Audit(); err != nil {
				return err
			}
		}
	}
	for _, l := range s.loads {
		if err := l.step(); err != nil {
			return err
		}
	}
	if s.overAt == 0 && s.over() {
		s.overAt = now
	}
	if s.wide != nil {
		return s.wide.progress(now)
	}
	return nil
}

func (s *scenario) over() bool {
	for _, l := range s.loads {
		if !l.over() {
			return false
		}
	}
	return true
}

// quiet reports whether no host has a connection.
func (s *scenario) quiet() bool {
	for _, h := range s.hosts {
		if h.Stack().Len() > 0 {
			return false
		}
	}
	return s.over()
}

// afterFaults returns how long after the last fault every workload had ended.
func (s *scenario) afterFaults() tick.Duration { return s.overAt.Sub(Epoch.Add(s.until)) }

// run runs the scenario and returns the violated invariant, if any.
func (s *scenario) run() error {
	end := Epoch.Add(s.until + settleTime)
	if err := s.world.Run(end, s.quiet); err != nil {
		return err
	}
	if !s.over() {
		return fmt.Errorf("not over %v after the last fault", settleTime)
	}
	if after := s.afterFaults(); after > workTime && !s.mayFail() {
		return fmt.Errorf("over only %v after the last fault", after)
	}
	for _, l := range s.loads {
		if err := l.verdict(); err != nil {
			return err
		}
	}
	for _, h := range s.hosts {
		if n := h.Stack().Len(); n > 0 {
			return fmt.Errorf("host %s still has %d connections", h.Name(), n)
		}
		if err := h.Audit(); err != nil {
			return err
		}
		st := h.Stats()
		if most := 200 + 10*(st.Sent+st.Received) + 100*uint64(len(s.loads)); st.IdleTimers > most {
			return fmt.Errorf("host %s: %d useless wake-ups with %d frames", h.Name(),
				st.IdleTimers, st.Sent+st.Received)
		}
	}
	if s.wide != nil {
		return s.wide.tidy()
	}
	return nil
}
