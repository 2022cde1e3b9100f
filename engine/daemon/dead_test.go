package daemon

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"xwarp/engine/daemon/control"
)

// TestStartedAnew: what a program had is free for the one that comes after its death, also when the daemon is slow to
// give it back; and one that is never given back keeps nobody out.
func TestStartedAnew(t *testing.T) {
	d, socket := daemonOn(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := &control.ListenArgs{Addr: netip.MustParseAddrPort(busy.Addr().String())}
	busy.Close()

	first := dialRaw(t, socket, "")
	if err := first.ask(control.OpListen, listen); err != nil {
		t.Fatal(err)
	}
	beside := dialRaw(t, socket, "") // is alive, and nobody waits for it
	held := d.session(t, 1)
	held.working.Lock() // as while it carries out a request
	if err := beside.ask(control.OpListen, listen); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("while its owner lives: %v", err)
	}
	first.Close()
	begin := time.Now()
	time.AfterFunc(deadWait/8, held.working.Unlock)
	second := dialRaw(t, socket, "")
	if time.Since(begin) < deadWait/8 {
		t.Error("it does not wait for the dead one")
	}
	if err := second.ask(control.OpListen, listen); err != nil {
		t.Errorf("started anew: %v", err)
	}

	held = d.session(t, 3)
	held.working.Lock()
	defer held.working.Unlock()
	second.Close()
	third := dialRaw(t, socket, "")
	if err := third.ask(control.OpListen, listen); err == nil {
		t.Error("a port that is not given back was given away")
	}
}

// session returns the n-th session of all.
func (d *Daemon) session(t *testing.T, n uint64) *session {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[n]
	if s == nil {
		t.Fatalf("there is no session %d", n)
	}
	return s
}
