package main

import (
	"errors"
	"os"

	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/scripts/lab/vm"
)

// cableMTU is the MTU of a cable. It is large enough for every frame that a card can send.
const cableMTU = 9216

// cable joins two network cards: a tap for each, and a relay between them that can impair frames.
type cable struct {
	middle *topo.Middle
	relay  *relay.Relay
	taps   [2][]*os.File // queues of the two taps, until the machine takes them over
}

func newCable(queues int) (c *cable, err error) {
	c = &cable{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
			c = nil
		}
	}()
	names := [2]string{"tap0", "tap1"}
	c.middle, err = topo.NewMiddle(cableMTU, names[0], names[1], func() (err error) {
		for i, name := range names {
			if c.taps[i], err = vm.OpenTap(name, queues); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	c.relay, err = relay.Start(c.middle, relay.Config{Seed: 1})
	return c, err
}

// mistreat sets the impairments of both directions to cfg.
func (c *cable) mistreat(cfg impair.Config) error {
	return errors.Join(c.relay.Set(relay.AToB, cfg), c.relay.Set(relay.BToA, cfg))
}

func (c *cable) close() error {
	var errs []error
	if c.relay != nil {
		errs = append(errs, c.relay.Close())
	}
	for _, files := range c.taps {
		for _, f := range files {
			f.Close()
		}
	}
	if c.middle != nil {
		errs = append(errs, c.middle.Close())
	}
	return errors.Join(errs...)
}
