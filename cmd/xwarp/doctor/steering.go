package doctor

import (
	"encoding/json"
	"fmt"
	"slices"

	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/ntuple"
)

// Values of Options.Steer.
const (
	SteerListen = "listen" // connections to Options.Ports of this host
	SteerDial   = "dial"   // connections to Options.Ports of peers
	SteerBoth   = "both"
)

var steeringCheck = check{
	name: "flow-steering", nic: true,
	why: "n-tuple rules put xwarp connections on the served queues and other traffic on the other queues; " +
		"without them, connections may arrive on any queue",
	look: lookForSteering,
	// The only setting is the state that undoes the fix, as JSON. The empty value stands for the rules of the fix.
	want: func(*env) (settings, error) { return settings{"before": ""}, nil },
	get: func(e *env, _ string) (string, error) {
		before, err := ntuple.Save(e.card(), e.plan())
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(before)
		return string(b), err
	},
	put: func(e *env, _, value string) error {
		if value == "" {
			return ntuple.Set(e.card(), e.plan())
		}
		var before ntuple.Before
		if err := json.Unmarshal([]byte(value), &before); err != nil {
			return err
		}
		return ntuple.Undo(e.card(), &before)
	},
}

func lookForSteering(e *env) finding {
	card, plan := e.card(), e.plan()
	have, more, err := ntuple.Rules(card)
	switch {
	case e.opt.Steer == "" && err != nil:
		return fine("not requested; %s does not report n-tuple rules", e.name())
	case e.opt.Steer == "":
		return fine("not requested; %s has %d n-tuple rules", e.name(), len(have)+more)
	case len(plan.Others()) == 0:
		return fine("not needed: all receive queues of %s are served", e.name())
	}
	f, err := ntuple.Look(card, plan)
	switch {
	case err != nil:
		return warn("%s rejects n-tuple rules: %v", e.name(), err).
			advise("serve all receive queues, or: %s", ethtool.QueuesCommand(e.name(),
				len(plan.Queues)))
	case f.Other != nil:
		return warn("conflicting rule: %v", f.Other).
			advise("xwarp doctor --undo, or: ethtool -N %s delete %d", e.name(), f.Other.Location)
	case len(f.Missing) > 0:
		return warn("connections of ports %v may arrive on any of %d queues, but only %v are served",
			plan.Ports, plan.QueueCount, plan.Queues).
			advise("xwarp doctor --fix with the same flags; if the NIC rejects that: --steer=listen, " +
				"--steer=dial, a single --queues, or serve all queues")
	}
	text := fmt.Sprintf("connections of ports %v arrive on queues %v", plan.Ports, plan.Queues)
	if len(f.Shared) > 0 {
		return fine("%s; so does other traffic (ethtool -X %s)", text, e.name())
	}
	return fine("%s, other traffic on the other queues", text)
}

// steered reports whether n-tuple rules put connections on the served queues.
func (e *env) steered() bool {
	if e.opt.Steer == "" {
		return false
	}
	f, err := ntuple.Look(e.card(), e.plan())
	return err == nil && len(f.Missing) == 0 && f.Other == nil
}

func (e *env) card() ntuple.Card {
	if e.opt.card != nil {
		return e.opt.card
	}
	return ntuple.Interface(e.name())
}

func (e *env) plan() *ntuple.Plan {
	return &ntuple.Plan{Ports: e.opt.Ports, Queues: slices.Sorted(slices.Values(e.opt.Queues)),
		Listen: e.opt.Steer != SteerDial, Dial: e.opt.Steer != SteerListen,
		QueueCount: e.receiveQueues()}
}
