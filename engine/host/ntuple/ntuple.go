// Package ntuple steers the TCP connections of given ports to given receive queues of a NIC, and all other traffic to
// the other queues. It uses n-tuple rules (ethtool -N), an RSS context for several queues (ethtool -X), and the RSS
// table. A later process can restore the previous state, also after a partial change, because rules are identified by
// their match. Linux has these commands as SIOCETHTOOL only; the newest kernels also have netlink for RSS contexts.
package ntuple

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

// Card is an interface of the calling thread's network namespace.
type Card interface {
	Name() string
	Ioctl(command []byte) error // runs a SIOCETHTOOL command
	NTuple() ethtool.Feature    // ethtool -k, "ntuple-filters"
	SetNTuple(on bool) error
}

// Rule steers TCP segments with a port to a queue or an RSS context. A port of 0 matches any port.
type Rule struct {
	V6               bool   `json:"v6,omitempty"`
	SrcPort, DstPort uint16 `json:",omitempty"`
	Queue            int    `json:"-"`
	Context          uint32 `json:"-"` // 0: Queue applies
	Location         uint32 `json:"-"` // in the NIC's rule table
}

// String returns the arguments of ethtool -N.
func (r Rule) String() string {
	text := "flow-type tcp4"
	if r.V6 {
		text = "flow-type tcp6"
	}
	if r.SrcPort != 0 {
		text += fmt.Sprint(" src-port ", r.SrcPort)
	}
	if r.DstPort != 0 {
		text += fmt.Sprint(" dst-port ", r.DstPort)
	}
	if r.Context != 0 {
		return text + fmt.Sprint(" context ", r.Context)
	}
	return text + fmt.Sprint(" action ", r.Queue)
}

// match is the rule without its action and location.
func (r Rule) match() Rule { return Rule{V6: r.V6, SrcPort: r.SrcPort, DstPort: r.DstPort} }

// Plan assigns connections to queues.
type Plan struct {
	Ports      []uint16
	Listen     bool  // match the local port
	Dial       bool  // match the remote port
	Queues     []int // for these connections, in ascending order
	QueueCount int   // number of receive queues of the NIC
}

// rules returns the rules of the plan, without their action.
func (p *Plan) rules() (list []Rule) {
	for _, port := range p.Ports {
		for _, v6 := range []bool{false, true} {
			if p.Listen {
				list = append(list, Rule{V6: v6, DstPort: port})
			}
			if p.Dial {
				list = append(list, Rule{V6: v6, SrcPort: port})
			}
		}
	}
	return list
}

// Others returns the queues for the host.
func (p *Plan) Others() (list []int) {
	for q := range p.QueueCount {
		if !slices.Contains(p.Queues, q) {
			list = append(list, q)
		}
	}
	return list
}

// Found is the state of a NIC compared with a plan.
type Found struct {
	Missing []Rule // rules of the plan that the NIC lacks, without their action
	Other   *Rule  // a rule with the match of one of the plan, but another action; nil: none
	Shared  []int  // queues of the plan that also receive the host's frames through RSS
}

// Look compares a NIC with a plan.
func Look(c Card, p *Plan) (f Found, err error) {
	have, _, err := Rules(c)
	if err != nil {
		return f, err
	}
	for _, want := range p.rules() {
		i := slices.IndexFunc(have, func(r Rule) bool { return r.match() == want })
		switch {
		case i < 0:
			f.Missing = append(f.Missing, want)
		case !slices.Equal(leadsTo(c, have[i]), p.Queues):
			f.Other = &have[i]
		}
	}
	for _, q := range Table(c) {
		if slices.Contains(p.Queues, int(q)) && !slices.Contains(f.Shared, int(q)) {
			f.Shared = append(f.Shared, int(q))
		}
	}
	slices.Sort(f.Shared)
	return f, nil
}

func leadsTo(c Card, r Rule) []int {
	if r.Context != 0 {
		return context(c, r.Context)
	}
	return []int{r.Queue}
}

// Before is the state that Undo needs.
type Before struct {
	Rules    []Rule   `json:"rules"` // rules that were missing
	Queues   []int    `json:"queues"`
	Contexts []uint32 `json:"contexts,omitempty"` // contexts over Queues that existed before
	Table    []uint32 `json:"table,omitempty"`    // RSS table before
	Target   []uint32 `json:"target,omitempty"`   // RSS table that Set writes
	Off      bool     `json:"off,omitempty"`      // n-tuple filters were off, and not fixed
}

// Save returns the state that Undo needs after Set. It changes nothing.
func Save(c Card, p *Plan) (b Before, err error) {
	f, err := Look(c, p)
	if err != nil {
		return b, err
	}
	b = Before{Rules: f.Missing, Queues: p.Queues, Contexts: contexts(c, p.Queues), Table: Table(c)}
	if rest := p.Others(); b.Table != nil && len(rest) > 0 {
		b.Target = spread(len(b.Table), rest)
	}
	n := c.NTuple()
	b.Off = !n.On && !n.Fixed
	return b, nil
}

// Set inserts the rules of a plan, all or none, and removes the plan's queues from the RSS table. If the table cannot
// be changed, Set returns no error; Look reports the queues that the host's frames still reach.
func Set(c Card, p *Plan) error {
	f, err := Look(c, p)
	if err != nil {
		return err
	}
	if f.Other != nil {
		return fmt.Errorf("%w: conflicting rule: %v", unix.EEXIST, f.Other)
	}
	before, err := Save(c, p)
	if err != nil {
		return err
	}
	if err := set(c, p, &before); err != nil {
		return errors.Join(err, Undo(c, &before))
	}
	if before.Target != nil {
		_ = setTable(c, before.Target)
	}
	return nil
}

func set(c Card, p *Plan, before *Before) error {
	if before.Off {
		if err := c.SetNTuple(true); err != nil {
			return err
		}
	}
	action := Rule{Queue: p.Queues[0]}
	if len(p.Queues) > 1 && len(before.Rules) > 0 {
		id, err := newContext(c, p.Queues)
		if err != nil {
			return err
		}
		action = Rule{Context: id}
	}
	for _, r := range before.Rules {
		r.Queue, r.Context = action.Queue, action.Context
		if err := insert(c, r); err != nil {
			return err
		}
	}
	return nil
}

// Undo reverts Set, even one that was interrupted. Later changes by others stay; a rule changed by others is an error.
func Undo(c Card, b *Before) (err error) {
	have, more, e := Rules(c)
	if e != nil && !errors.Is(e, unix.EOPNOTSUPP) {
		err = e
	}
	for _, r := range have {
		ours := slices.ContainsFunc(b.Rules, func(o Rule) bool { return o.match() == r.match() })
		switch {
		case !ours:
			more++
		case !slices.Equal(leadsTo(c, r), b.Queues):
			err = errors.Join(err, fmt.Errorf("rule was changed by another program and kept: %v "+
				"(to remove it: ethtool -N %s delete %d)", r, c.Name(), r.Location))
		default:
			err = errors.Join(err, remove(c, r.Location))
		}
	}
	for _, id := range contexts(c, b.Queues) {
		if !slices.Contains(b.Contexts, id) {
			err = errors.Join(err, deleteContext(c, id))
		}
	}
	if b.Target != nil && !slices.Equal(b.Target, b.Table) && slices.Equal(Table(c), b.Target) {
		err = errors.Join(err, restoreTable(c, b.Table))
	}
	if b.Off && more == 0 && err == nil && c.NTuple().On {
		err = c.SetNTuple(false)
	}
	return err
}

// restoreTable restores an RSS table. If table equals the kernel's default, it restores the default as such, which
// follows later changes of the number of queues.
func restoreTable(c Card, table []uint32) error {
	if setTable(c, nil) == nil && slices.Equal(Table(c), table) {
		return nil
	}
	return setTable(c, table)
}

// Interface is the Card of the interface with that name.
type Interface string

// Name returns the name of the interface.
func (i Interface) Name() string { return string(i) }

// Ioctl runs a SIOCETHTOOL command on the interface.
func (i Interface) Ioctl(command []byte) error { return ethtool.Ioctl(string(i), command) }

// filters is the kernel's name of n-tuple filters.
const filters = "rx-ntuple-filter"

// NTuple returns the state of n-tuple filters. If the driver lacks them, or the state cannot be read, they are off and
// fixed.
func (i Interface) NTuple() ethtool.Feature {
	all, err := ethtool.Features(string(i))
	if f, ok := all[filters]; err == nil && ok {
		return f
	}
	return ethtool.Feature{Fixed: true}
}

// SetNTuple switches n-tuple filters on or off.
func (i Interface) SetNTuple(on bool) error { return ethtool.SetFeature(string(i), filters, on) }

// Bounds on the answers of drivers.
const (
	maxRules   = 1 << 16 // listed rules; the largest tables have 16,384
	maxTable   = 1 << 16 // entries of an indirection table
	maxQueue   = 1 << 16 // larger actions of a rule are not queues: drop, or a virtual function
	maxContext = 64      // RSS contexts to probe
)
