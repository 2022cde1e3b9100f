package session

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/tcp/tick"
)

// testDaemon serves programs with a kernel-transport device. It has no other part of a daemon.
type testDaemon struct {
	cfg     *config.Loaded
	dev     atomic.Pointer[device.Device]
	users   *budget.Users
	mapper  *control.Mapper
	log     *slog.Logger
	events  *Events
	count   Counters
	defects atomic.Uint64

	mu   sync.Mutex
	last uint64
	list map[uint64]*Session
}

func (d *testDaemon) Config() *config.Loaded { return d.cfg }

// open opens the configured device, which replaces the previous one.
func (d *testDaemon) open(t *testing.T) {
	t.Helper()
	o := device.Opener{Config: d.Config, Log: d.log, Peers: budget.NewPeers(nil)}
	dev, err := o.Open(d.cfg.Interface[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	d.dev.Store(dev)
}

func (d *testDaemon) Devices() []*device.Device { return []*device.Device{d.dev.Load()} }

func (d *testDaemon) Sessions() []*Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.list))
}

func (d *testDaemon) Snapshot(*budget.Holder) (s control.Snapshot) { return s }

func (d *testDaemon) Confirm() (r control.ConfirmResult, err error) { return r, nil }

func (d *testDaemon) ReloadConfig() (r control.ReloadResult, err error) { return r, nil }

func (d *testDaemon) FlushExport(string) error { return nil }

func (d *testDaemon) ReportDefect(log *slog.Logger, doing string, v any) {
	log.Error("panic", "doing", doing, "panic", v)
	d.defects.Add(1)
}

func (d *testDaemon) Forget(s *Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.list, s.ID())
}

// used returns the sum of all accounts.
func (d *testDaemon) used() (n budget.Amounts) {
	limits := func(h budget.Holder) budget.Limits { return new(d.cfg.HolderLimits(h)) }
	for _, a := range d.users.State(limits, func(budget.Holder) bool { return true }) {
		for k := range a.Used {
			n[k] += a.Used[k]
		}
	}
	return n
}

// start returns a daemon, and the socket for its programs, which all belong to one user.
func start(t *testing.T) (d *testDaemon, socket string) {
	t.Helper()
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "xwarp.toml"), filepath.Join(dir, "socket")
	text := "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d = &testDaemon{cfg: cfg, mapper: control.NewMapper(), list: map[uint64]*Session{},
		events: NewEvents(),
		users:  budget.NewUsers(2, func() tick.Time { return tick.Time(time.Since(began)) }),
		log:    slog.New(slog.NewTextHandler(t.Output(), nil))}
	d.users.SetBounds(budget.Bounds{Host: budget.HostBounds(), Sessions: cfg.Daemon.Clients})
	d.open(t)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	go d.events.NotifyLoop(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			served.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		for _, s := range d.Sessions() {
			s.Fail(ErrShutdown)
		}
		served.Wait()
		d.dev.Load().Close()
		d.mapper.Close()
	})
	return d, socket
}

// serve runs the session of a program.
func (d *testDaemon) serve(c *net.UnixConn) {
	who := budget.Holder{UID: 1000}
	a, err := d.users.Enter(who, new(d.cfg.HolderLimits(who)), Cost)
	if err != nil {
		c.Close()
		return
	}
	d.mu.Lock()
	d.last++
	all := func(netip.Addr) error { return nil }
	s := New(d, Config{Rendezvous: NewRendezvousService(all, true), ID: d.last, Conn: c,
		Cred: &unix.Ucred{Uid: 1000}, Account: a,
		Mapper: d.mapper, Count: &d.count, Log: d.log, Events: d.events})
	d.list[d.last] = s
	d.mu.Unlock()
	s.Run(func() {})
}

// session returns the n-th session.
func (d *testDaemon) session(t *testing.T, n uint64) *Session {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.list[n]
	if s == nil {
		t.Fatalf("no session %d", n)
	}
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no " + what)
		}
	}
}
