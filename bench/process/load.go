package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"xwarp/bench/topo"
	"xwarp/engine/daemon/client"
	"xwarp/engine/verbs"
)

// Load is work that another user of the machine does during a measurement.
type Load string

// The loads. The hostile ones keep a daemon's worker busy with requests that complete without a frame.
const (
	Burn   Load = "burn"   // keeps two processors busy
	Refuse Load = "refuse" // posts Reads with two SGEs, which are refused
	Bind   Load = "bind"   // binds memory windows
)

// Sizes of the hostile loads: sessions, queue pairs in each session, and work requests of each queue pair.
const (
	loadSessions = 15
	loadQPs      = 2
	loadDepth    = 8191
	loadUser     = 65534 // user ID of a load: neither root nor the user of the measured programs
)

// loadJob is the standard input of a load, in JSON.
type loadJob struct {
	Load   Load       `json:"load"`
	From   string     `json:"from"`   // socket of the daemon whose worker the load keeps busy
	To     string     `json:"to"`     // socket of the daemon that accepts the load's connections
	Accept netip.Addr `json:"accept"` // address at which To listens for them
}

// StartLoad starts load l in another process and returns when it runs. A hostile load keeps the worker of the daemon
// from busy; its connections end at the daemon to, whose host has the address at. Calling stop ends the load.
func StartLoad(ctx context.Context, l Load, from, to *Daemon, at netip.Addr) (stop func(),
	err error) {
	j := loadJob{Load: l, From: from.Socket, To: to.Socket, Accept: at}
	in, err := json.Marshal(&job{Load: &j})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, self, EndCommand)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := topo.StartHere(cmd); err != nil {
		return nil, err
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return nil, fmt.Errorf("load %s: %w: %s", l, err, said.String())
	}
	return stop, nil
}

// run is the main function of a load's process.
func (l *loadJob) run(ctx context.Context) error {
	if err := errors.Join(syscall.Setgid(loadUser), syscall.Setuid(loadUser)); err != nil {
		return err
	}
	if l.Load == Burn {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 2))
		for range 2 {
			go func() {
				for n := uint64(1); n != 0; n += 2 { // endless: n is always odd
				}
			}()
		}
		fmt.Println("ready")
		<-ctx.Done()
		return nil
	}
	at, err := l.acceptAll(ctx)
	if err != nil {
		return err
	}
	var all []*hostile
	for range loadSessions {
		dev, err := client.Open(l.From)
		if err != nil {
			return err
		}
		for range loadQPs {
			h, err := newHostile(ctx, dev, at, l.Load)
			if err != nil {
				return err
			}
			all = append(all, h)
		}
	}
	fmt.Println("ready")
	for ; ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
		for _, h := range all {
			if err := h.turn(); err != nil {
				return err
			}
		}
	}
	return nil
}

// acceptAll opens a listener on the daemon To, accepts all connections until ctx ends, and returns the listener's
// address.
func (l *loadJob) acceptAll(ctx context.Context) (at netip.AddrPort, err error) {
	dev, err := client.Open(l.To)
	if err != nil {
		return at, err
	}
	listener, err := dev.Listen(netip.AddrPortFrom(l.Accept, 0),
		verbs.ListenConfig{Backlog: loadSessions * loadQPs})
	if err != nil {
		return at, err
	}
	first, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{SharedCQ: true})
	if err != nil {
		return at, err
	}
	cfg := verbs.EndpointConfig{QPConfig: verbs.QPConfig{PD: first.PD, SendCQ: first.SendCQ,
		RecvCQ: first.RecvCQ}}
	go func() {
		for {
			r, err := listener.Accept(ctx)
			if err != nil {
				return
			}
			e, err := verbs.NewEndpoint(dev, cfg)
			if err == nil {
				err = r.Accept(ctx, e.QP, nil)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	return listener.Addr(), nil
}

// hostile is a queue pair whose send queue is kept full.
type hostile struct {
	qp   verbs.QP
	cq   verbs.CQ
	wr   verbs.SendWR
	free int // free places in the send queue, of loadDepth
	done [256]verbs.Completion
}

func newHostile(ctx context.Context, dev verbs.Device, at netip.AddrPort, l Load) (*hostile,
	error) {
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{
		SendDepth: loadDepth, MaxSGE: 2}})
	if err != nil {
		return nil, err
	}
	mr, err := e.Buffer(4096, verbs.LocalWrite|verbs.BindMW)
	if err != nil {
		return nil, err
	}
	if err := e.Dial(ctx, at, verbs.DialConfig{}); err != nil {
		return nil, err
	}
	h := &hostile{qp: e.QP, cq: e.SendCQ, free: loadDepth}
	h.wr = verbs.SendWR{Op: verbs.WRRead, SGL: make([]verbs.SGE, 2)}
	if l == Bind {
		mw, err := e.PD.AllocMW()
		if err != nil {
			return nil, err
		}
		h.wr = verbs.SendWR{Op: verbs.WRBindMW, RemoteSTag: mw.STag(), Region: mr.STag(), Data: 64,
			Access: verbs.RemoteRead}
	}
	h.wr.Flags = verbs.Signaled
	return h, nil
}

// turn polls all available completions and posts as many new requests.
func (h *hostile) turn() error {
	for n := len(h.done); n == len(h.done); {
		var err error
		if n, err = h.cq.Poll(h.done[:]); err != nil {
			return err
		}
		h.free += n
	}
	for ; h.free > 0; h.free-- {
		h.wr.RemoteSTag = h.wr.RemoteSTag&^0xff | verbs.STag(h.free&0xff)
		if err := h.qp.PostSend(&h.wr); err != nil {
			return err
		}
	}
	return nil
}
