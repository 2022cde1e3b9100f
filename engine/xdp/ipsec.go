package xdp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/xfrm"
	"xwarp/engine/internal/core"
	"xwarp/engine/ipsec"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
)

// IPsecConfig says which connections of a device IPsec ESP protects (RFC 5044, 9.3), and where its SAs come from.
type IPsecConfig struct {
	// Rules say which connections are protected; the first that matches decides. A connection without a
	// matching rule is not protected. Segments that must be protected and are not are dropped.
	Rules []ipsec.Rule
	// IfID and Mark are those of the SAs that an IKE daemon installs for the engine: see xfrm.Options.
	IfID, Mark uint32
	Window     int // anti-replay window in packets [esp.DefaultWindow]
	// Static, when set, replaces the kernel and its IKE daemon, for tests. A device that is opened again with the same
	// keys would reuse sequence numbers, which breaks the encryption.
	Static *xfrm.State
}

// ipsecState is the IPsec state of a device, nil without IPsec.
type ipsecState struct {
	x       *driver
	manager *ipsec.Manager
	kernel  *xfrm.Follower // nil with static SAs
	worker  *worker
	done    chan struct{}
}

// openIPsec makes the state that newWorker needs.
func (x *driver) openIPsec() error {
	c := x.cfg.IPsec
	if c == nil {
		return nil
	}
	if len(x.cfg.Queues) != 1 {
		return fmt.Errorf("%w: IPsec needs all connections of an SA on one worker: serve one queue, "+
			"such as 0, and set the interface to one (ethtool -L %s combined 1)", verbs.ErrInvalid,
			x.cfg.Interface)
	}
	i := &ipsecState{x: x, done: make(chan struct{})}
	i.manager = ipsec.New(ipsec.Config{Rules: c.Rules, Window: c.Window, Kernel: i,
		Steering: x.steer, Random: core.RandomSeed, Wake: i.expire, Log: x.base.Log()})
	x.ipsec = i
	return nil
}

// policy returns the policy for a Stack, nil without IPsec.
func (i *ipsecState) policy() stack.IPsec {
	if i == nil {
		return nil
	}
	return i.manager
}

// follow starts to follow the SAs, for the only worker.
func (i *ipsecState) follow(workers []*worker) (err error) {
	if i == nil {
		return nil
	}
	i.worker = workers[0]
	i.manager.Use(i.worker.stk)
	c := i.x.cfg.IPsec
	if c.Static != nil {
		i.update(c.Static)
	} else if i.kernel, err = xfrm.Follow(xfrm.Options{IfID: c.IfID, Mark: c.Mark,
		Notify: i.update, Log: i.x.base.Log()}); err != nil {
		return err
	}
	go i.tick()
	return nil
}

func (i *ipsecState) update(s *xfrm.State) {
	i.worker.Post(func() { i.manager.Update(s) })
}

// expire posts a run of the Manager's timers.
func (i *ipsecState) expire() {
	i.worker.Post(func() {
		if now := core.Now(); i.manager.Deadline() <= now {
			i.manager.Expire(now)
		}
	})
}

// tick calls expire every second.
func (i *ipsecState) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			i.expire()
		case <-i.done:
			return
		}
	}
}

func (i *ipsecState) close() {
	if i == nil {
		return
	}
	close(i.done)
	if i.kernel != nil {
		i.kernel.Close()
	}
}

// Acquire, Expire and Account implement ipsec.Kernel. Static SAs have no IKE daemon.

func (i *ipsecState) Acquire(p *xfrm.Policy) error {
	if i.kernel == nil {
		return unix.ENOTCONN
	}
	return i.kernel.Acquire(p)
}

func (i *ipsecState) Expire(sa *xfrm.SA, hard bool) error {
	if i.kernel == nil {
		return unix.ENOTCONN
	}
	return i.kernel.Expire(sa, hard)
}

func (i *ipsecState) Account(sa *xfrm.SA, packets, bytes uint64) error {
	if i.kernel == nil {
		return nil
	}
	return i.kernel.Account(sa, packets, bytes)
}
