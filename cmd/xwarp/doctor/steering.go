package doctor

import (
	"encoding/json"
	"fmt"
	"slices"

	"xwarp/engine/host/ntuple"
)

// Values of Options.Steer.
const (
	SteerListen = "listen" // connections to Options.Ports of this host
	SteerDial   = "dial"   // connections to these ports of peers
	SteerBoth   = "both"
)

var steeringCheck = check{
	name: "flow-steering", nic: true,
	why: "with n-tuple rules the card puts xwarp's connections on the queues that are served, and the host's traffic " +
		"on the others; without, they come on any queue",
	look: lookForSteering,
	save: func(e *env) (settings, error) {
		before, err := ntuple.Save(e.card(), e.plan())
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(before)
		return settings{"before": string(b)}, err
	},
	fix: func(e *env) error { return ntuple.Set(e.card(), e.plan()) },
	undo: func(e *env, s settings) error {
		var before ntuple.Before
		if err := json.Unmarshal([]byte(s["before"]), &before); err != nil {
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
		return fine("not asked for, and %s does not report n-tuple rules", e.name())
	case e.opt.Steer == "":
		return fine("not asked for; %s has %d n-tuple rules", e.name(), len(have)+more)
	case len(plan.Others()) == 0:
		return fine("all receive queues of %s are served: nothing is to be kept apart", e.name())
	}
	f, err := ntuple.Look(card, plan)
	switch {
	case err != nil:
		return warn("%s takes no n-tuple rules: %v", e.name(), err).
			advise("serve all receive queues, or ethtool -L %s combined %d", e.name(),
				len(plan.Queues))
	case f.Other != nil:
		return warn("there is a rule that leads elsewhere: %v", f.Other).
			advise("xwarp doctor --undo, or ethtool -N %s delete %d", e.name(), f.Other.Location)
	case len(f.Missing) > 0:
		return warn("connections of ports %v come on any of %d queues, and queues %v are served",
			plan.Ports, plan.All, plan.Queues).
			advise("xwarp doctor --fix with the same flags; where the card refuses: --steer=listen " +
				"or --steer=dial, or a single --queue, or serve all")
	}
	text := fmt.Sprintf("connections of ports %v come on queues %v", plan.Ports, plan.Queues)
	if len(f.Shared) > 0 {
		return fine("%s; the host's traffic on these, too (ethtool -X %s)", text, e.name())
	}
	return fine("%s, the host's traffic on others", text)
}

// steered says that the card puts connections on the queues that are served.
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
		Listen: e.opt.Steer != SteerDial, Dial: e.opt.Steer != SteerListen, All: e.receiveQueues()}
}
