// Package stress opens and closes many concurrent connections between two devices at random, and checks the contract of
// package verbs: every byte, one completion per work request, and no leftovers at the end. A seed determines the
// events; the scheduler determines their timing, so use the race detector.
package stress

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"xwarp/engine/verbs"
)

// Config is the configuration of a run.
type Config struct {
	Seed uint64
	A, B verbs.Device   // A dials B
	At   netip.AddrPort // address on which B listens, with a port of its choice
	// Loopback is set if sockets of this process reach At. Some connections then go through a relay, which damages some
	// of them.
	Loopback bool
	Lines    int          // concurrent sequences of connections
	Each     int          // connections per sequence
	Close    func() error // ends devices in the middle; nil for none
}

func (c *Config) closes() bool { return c.Close != nil }

// Run runs the connections and returns their errors.
func Run(c Config) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var err error
	var all []*pair
	for line := range c.Lines {
		group.Go(func() {
			for i := range c.Each {
				p := newPair(&c, line*c.Each+i)
				e := p.runTransfers()
				if e != nil {
					e = fmt.Errorf("connection %d (%v): %w", line*c.Each+i, p, e)
				}
				mu.Lock()
				err, all = errors.Join(err, e), append(all, p)
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	if c.closes() {
		rnd := rand.New(rand.NewPCG(c.Seed, ^uint64(0)))
		time.Sleep(time.Duration(rnd.IntN(int(200 * time.Millisecond)))) // the devices are probably busy then
		if e := c.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("closing a device: %w", e))
		}
	}
	group.Wait()
	for _, p := range all { // only now: a closed device releases its regions before Close returns
		err = errors.Join(err, p.free())
	}
	return err
}
