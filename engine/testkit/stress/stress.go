// Package stress has many connections of two devices come and go at random, beside each other, and holds each of them
// to what package verbs promises: every byte, one completion for each work request, an end that lets go of
// everything. A seed draws what happens; when it happens is the scheduler's choice, so that the race detector should
// watch.
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

// Config says what connects to what.
type Config struct {
	Seed uint64
	A, B verbs.Device   // A dials B
	At   netip.AddrPort // where B listens, at a port of its choice
	// Loopback says that this process's own sockets reach At: some connections go through a relay, which
	// harms some of them.
	Loopback bool
	Lines    int          // of connections, one after the other in each
	Each     int          // connections of a line
	Close    func() error // ends devices in the middle; nil for none
}

func (c *Config) closes() bool { return c.Close != nil }

// Run returns what went wrong.
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
		time.Sleep(time.Duration(rnd.IntN(int(200 * time.Millisecond)))) // likely, they are busy
		if e := c.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("closing a device: %w", e))
		}
	}
	group.Wait()
	for _, p := range all { // not before: a device that is closed has let go of its regions when Close returns
		err = errors.Join(err, p.free())
	}
	return err
}
