package demo

import (
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
)

// startRelay mistreats both directions alike.
func startRelay(net *topo.Net, cfg *Config) (*relay.Relay, error) {
	c := impair.Config{
		Loss: cfg.Loss, Reorder: cfg.Reorder, Duplicate: cfg.Duplicate, Corrupt: cfg.Corrupt,
		CorruptMode: impair.CorruptSealed, Resegment: cfg.Resegment,
	}
	return relay.Start(net.Relay, relay.Config{AB: c, BA: c, Seed: cfg.Seed})
}

// relayed returns what r did to the frames of one direction.
func relayed(r *relay.Relay, d relay.Direction) *Relay {
	c := r.Counters(d)
	return &Relay{
		In: c.In, Out: c.Out, Lost: c.Lost, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted,
		RecutIn:   c.RecutIn, RecutOut: c.RecutOut,
		Overflow: c.Overflow + c.QueueDropped + c.Truncated + c.SendErrors,
	}
}
