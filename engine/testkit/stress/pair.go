package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// fate is how a connection ends, apart from damage by a relay.
type fate int

const (
	inOrder    fate = iota
	closeQP         // one end calls Close in the middle
	disconnect      // one end calls Disconnect in the middle
	deregister      // the peer's target is closed in the middle
	reject          // the listener's consumer rejects the request
	ignore          // the listener's consumer never answers
	giveUp          // Dial's context ends at any time
	unlisten        // the listener is closed at any time
	closeEarly      // Close while Dial or Accept waits
	fates
)

func (f fate) String() string {
	return [fates]string{"in order", "close", "disconnect", "deregister", "reject", "ignore",
		"give up", "unlisten", "close early"}[f]
}

// patience bounds operations that must end by themselves; restless, those that need not.
const (
	patience = 60 * time.Second
	restless = 100 * time.Millisecond
)

// pair is one connection, from the creation of its objects to the close of the last one.
type pair struct {
	*Config
	rnd  *rand.Rand
	fate fate
	damage
	relayed bool
	relay   *relay
	a, b    *end // a dials
}

func newPair(c *Config, n int) *pair {
	p := &pair{Config: c, rnd: rand.New(rand.NewPCG(c.Seed, uint64(n)))}
	if p.rnd.IntN(2) == 0 {
		p.fate = fate(p.rnd.IntN(int(fates)))
	}
	if c.Loopback && p.rnd.IntN(2) == 0 {
		p.damage = damage{harm(p.rnd.IntN(int(harms))), p.rnd.IntN(2) == 0,
			p.rnd.IntN(1 << p.rnd.IntN(20))}
	}
	if c.Loopback && p.fate == disconnect { // its memory is lent to the kernel when Disconnect returns it to its owner
		p.damage = damage{harm: pause, at: p.rnd.IntN(30_000)}
	}
	p.relayed = c.Loopback && (p.harm != noHarm || p.rnd.IntN(2) == 0)
	return p
}

func (p *pair) String() string { return fmt.Sprintf("%v, %v", p.fate, p.damage) }

// calm reports whether everything must succeed.
func (p *pair) calm() bool {
	return p.fate == inOrder && (p.harm == noHarm || p.harm == pause) && !p.closes()
}

func (p *pair) runTransfers() error {
	ops := 1 + p.rnd.IntN(1<<p.rnd.IntN(8))
	var err error
	for i, e := range []**end{&p.a, &p.b} {
		dev := []verbs.Device{p.A, p.B}[i]
		rnd := rand.New(rand.NewPCG(p.rnd.Uint64(), uint64(i)))
		if *e, err = newEnd(dev, rnd.Uint64(), rnd, ops); err != nil {
			return p.unlessOver("objects", err)
		}
		(*e).calm = p.calm()
	}
	p.a.peer, p.b.peer = p.b, p.a
	limit := restless
	if p.calm() {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p.plan()
	up, err := p.connect(ctx)
	if err == nil && up {
		ran := make(chan error, 1)
		go func() { ran <- p.a.runOperations(ctx) }()
		err = p.b.runOperations(ctx)
		err = errors.Join(err, <-ran)
	}
	return errors.Join(err, p.tearDown(up))
}

// plan makes one end carry out the fate in the middle.
func (p *pair) plan() {
	e := p.a
	if p.rnd.IntN(2) == 0 {
		e = p.b
		p.back = p.back || p.fate == disconnect
	}
	e.actAtLeft = p.rnd.IntN(e.ops + 1)
	switch p.fate {
	case closeQP:
		e.act = e.QP.Close
	case disconnect:
		qp, after := e.QP, time.Duration(p.rnd.IntN(int(restless/4)))
		e.actAtLeft, e.act = e.ops, func() error {
			time.AfterFunc(after, func() { qp.Disconnect() })
			return nil
		}
	case deregister:
		e.act = e.deregister
	}
}

// deregister closes the target. While the peer is reading it, it tries again after each operation.
func (e *end) deregister() error {
	e.actErr = e.door.Close()
	switch {
	case e.actErr == nil:
		fill(e.target, poison) // no longer accessible to the peer
		e.shut = true
	case errors.Is(e.actErr, verbs.ErrBusy):
		e.act, e.actAtLeft, e.actErr = e.deregister, e.ops-1, nil
	}
	return e.actErr
}

// connect establishes the connection at both ends. up is false if it was not established, which is an error unless the
// fate explains it.
func (p *pair) connect(ctx context.Context) (up bool, err error) {
	l, err := p.B.Listen(p.At, verbs.ListenConfig{})
	if err != nil {
		return false, p.unlessOver("listen", err)
	}
	at := l.Addr()
	if p.relayed {
		if p.relay, err = newRelay(at, p.damage, p.rnd.Uint64()); err != nil {
			return false, errors.Join(err, l.Close())
		}
		at = p.relay.addr()
	}
	dialling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.meanwhile(l, cancel).Stop()
	accepted, posted := make(chan error, 1), make(chan error, 1)
	go func() { accepted <- p.accept(ctx, l) }()
	pause := time.Duration(p.rnd.IntN(1 << p.rnd.IntN(20))) // up to 1 ms
	go func() {
		posted <- errors.Join(p.a.receives(recvs/2, pause), p.b.receives(recvs/2, pause))
	}()
	m := p.mpa()
	err = p.A.Dial(dialling, at, p.a.QP, verbs.DialConfig{MPA: &m})
	if err != nil {
		l.Close() // no more connections
	}
	err = errors.Join(err, <-accepted, <-posted)
	if e := l.Close(); err == nil && e != nil {
		return true, p.unlessOver("close the listener", e)
	}
	if p.calm() && err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	return err == nil, nil
}

func (p *pair) mpa() (m verbs.MPAConfig) {
	markers := p.rnd.IntN(2) != 0 && p.fate != disconnect
	m = verbs.MPAWith(markers, p.corrupts() || p.rnd.IntN(4) != 0 && p.fate != disconnect)
	if p.rnd.IntN(4) == 0 {
		m.Revision = startup.RevIETF
	}
	return m
}

// meanwhile carries out the fate while Dial and Accept wait.
func (p *pair) meanwhile(l verbs.Listener, cancel func()) *time.Timer {
	after := time.Duration(p.rnd.IntN(1 << p.rnd.IntN(23))) // up to 4 ms
	return time.AfterFunc(after, func() {
		switch p.fate {
		case giveUp:
			cancel()
		case unlisten:
			l.Close()
		case closeEarly:
			p.a.QP.Close()
			p.b.QP.Close()
		}
	})
}

// errNot is the error of accept for a request that it does not accept.
var errNot = errors.New("not accepted")

func (p *pair) accept(ctx context.Context, l verbs.Listener) error {
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	switch p.fate {
	case reject:
		r.Reject([]byte("no"))
		return errNot
	case ignore:
		return errNot
	}
	return r.Accept(ctx, p.b.QP, nil)
}

// unlessOver returns err, unless the close of a device explains it.
func (p *pair) unlessOver(what string, err error) error {
	over := errors.Is(err, net.ErrClosed) || errors.Is(err, verbs.ErrBusy) // busy with objects of a closed worker
	if err == nil || p.closes() && over {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// tearDown closes the remaining objects, and checks that both ends account for all posted requests.
func (p *pair) tearDown(up bool) (err error) {
	first, second := p.a, p.b
	if p.rnd.IntN(2) == 0 {
		first, second = second, first
	}
	if up && p.calm() {
		if e := first.QP.Disconnect(); e != nil {
			err = fmt.Errorf("disconnect: %w", e)
		}
		for _, e := range []*end{first, second} {
			err = errors.Join(err, e.hasEnded())
		}
	}
	exact := !p.closes() && p.fate != closeEarly
	if p.relay != nil {
		defer p.relay.close()
	}
	for _, e := range []*end{first, second} {
		err = errors.Join(err, e.settle(exact), p.unlessOver("close the target", e.actErr))
		for what, e := range map[string]error{"CQ.Close": e.CQ.Close(), "target": e.door.Close(),
			"MR.Close": e.MR.Close()} {
			err = errors.Join(err, p.unlessOver(what, e))
		}
		err = errors.Join(err, p.unlessOver("PD.Close", e.PD.Close()), e.untouched())
	}
	return err
}

// free frees the memory of both ends.
func (p *pair) free() (err error) {
	for _, e := range []*end{p.a, p.b} {
		if e != nil {
			err = errors.Join(err, e.Dev.Free(e.Mem), e.Dev.Free(e.target))
		}
	}
	return p.unlessOver("Free", err)
}

// hasEnded waits for the end of an undisturbed connection.
func (e *end) hasEnded() error {
	select {
	case <-e.QP.Done():
	case <-time.After(patience):
		return errors.New("the connection is still open after Disconnect")
	}
	if err := e.QP.Err(); err != nil {
		return fmt.Errorf("a connection closed in order ended with %w", err)
	}
	return nil
}

// settle closes the queue pair and polls the remaining completions. No work request has two completions; if exact is
// set, each has one.
func (e *end) settle(exact bool) error {
	over := false
	select {
	case <-e.QP.Done():
		over = true
	default:
		e.QP.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A queue pair that was never connected does not complete its receives.
	exact = exact && (over || e.QP.RemoteAddr().IsValid())
	e.calm = false
	var got [8]verbs.Completion
	for exact && (len(e.out) > 0 || uint64(e.came) < e.receivesPosted) {
		n, err := e.CQ.Wait(ctx, got[:])
		if err != nil {
			return fmt.Errorf("%d send work requests and %d receives do not complete: %w",
				len(e.out),
				e.receivesPosted-uint64(e.came), err)
		}
		if err := e.takeRest(got[:n], nil); err != nil {
			return err
		}
	}
	if err := e.QP.Close(); err != nil {
		return fmt.Errorf("QP.Close: %w", err)
	}
	for {
		n, _ := e.CQ.Poll(got[:])
		if n == 0 {
			return nil
		}
		if err := e.takeRest(got[:n], nil); err != nil {
			return fmt.Errorf("after Close: %w", err)
		}
	}
}

// untouched checks that the peer has not changed the target after it was closed, or sent memory that it had taken back.
func (e *end) untouched() error {
	if e.shut {
		if n := bytes.Count(e.target, []byte{poison}); n != len(e.target) {
			return fmt.Errorf("%d bytes of a closed region have changed", len(e.target)-n)
		}
		return nil
	}
	if i := bytes.IndexByte(e.target[:area], poison); i >= 0 {
		return fmt.Errorf("the peer sent memory that it no longer owned, at byte %d", i)
	}
	return nil
}
