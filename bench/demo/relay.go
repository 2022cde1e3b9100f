package demo

import (
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
)

// relayed is the relay between the hosts.
type relayed struct{ *relay.Relay }

// startRelay mistreats both directions alike.
func startRelay(net *topo.Net, cfg *Config) (*relayed, error) {
	c := impair.Config{
		Loss: cfg.Loss, Reorder: cfg.Reorder, Duplicate: cfg.Duplicate, Corrupt: cfg.Corrupt,
		CorruptMode: impair.CorruptSealed, Resegment: cfg.Resegment,
	}
	r, err := relay.Start(net.Relay, relay.Config{AB: c, BA: c, Seed: cfg.Seed})
	if err != nil {
		return nil, err
	}
	return &relayed{r}, nil
}

func (r *relayed) counters() (aToB, bToA *Relay) { return r.of(relay.AToB), r.of(relay.BToA) }

func (r *relayed) of(d relay.Direction) *Relay {
	c := r.Counters(d)
	return &Relay{
		In: c.In, Out: c.Out, Lost: c.Lost, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted,
		RecutIn:   c.RecutIn, RecutOut: c.RecutOut,
		Overflow: c.Overflow + c.QueueDropped + c.Truncated + c.SendErrors,
	}
}

func (r *relayed) close() error { return r.Close() }
