package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/wake"
)

// Daemon is the part of the daemon that its exports use. Its methods may be called from any goroutine.
type Daemon interface {
	Devices() []*device.Device
	// ReportDefect counts and logs a panic. It must be called before the stack of the panic is unwound.
	ReportDefect(log *slog.Logger, doing string, v any)
}

// Set is the exports of a daemon. Its methods may be called from any goroutine.
type Set struct {
	d    Daemon
	log  *slog.Logger
	wake wake.Flag // ReviveLoop must check the exports

	opening sync.Mutex // held while a reload or ReviveLoop opens and closes exports; taken before mu

	mu sync.Mutex
	// guarded by mu
	list    []*export
	stopped []*export // those that Stop has stopped
	counts  map[string]*counts
}

// NewSet returns a set without exports.
func NewSet(d Daemon, log *slog.Logger) *Set {
	return &Set{d: d, log: log, wake: wake.New(), counts: map[string]*counts{}}
}

// countsOf returns the counters of the exports with a name.
func (s *Set) countsOf(name string) *counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[name] == nil {
		s.counts[name] = &counts{}
	}
	return s.counts[name]
}

// Start adds an export, opens it and serves it. If it cannot be opened it waits for ReviveLoop, and Start returns why.
// On a lost device it waits without an error, like the exports that were open there. Without a device of its interface,
// Start fails and does not add it.
func (s *Set) Start(c config.Export) error {
	v := device.Find(s.d.Devices(), c.Interface)
	if v == nil {
		return fmt.Errorf("export %s: interface %s is not open: a new [[interface]] needs "+
			"systemctl restart xwarpd", c.Name, c.Interface)
	}
	var e *export
	lost := v.Core.Err()
	err := lost
	if lost == nil {
		e, err = s.openExport(c, v, nil)
		lost = v.Core.Err()
	}
	if err != nil {
		e, _ = s.newExport(c, v)
	}
	switch {
	case err == nil:
	case lost != nil:
		err = nil
		e.log.Warn("export waits for its device", "device", v.Name, "error", lost,
			"next", v.Remedy())
	default:
		e.log.Error("cannot open export: retrying; other exports are not affected",
			"error", err, "next", remedy(&c, err))
		e.failWith(err, true)
	}
	s.mu.Lock()
	s.list = append(s.list, e)
	s.mu.Unlock()
	if lost := v.Core.Err(); lost != nil { // OnDeviceLost may have run before e was in the list
		e.failWith(lost, true)
	}
	s.WakeReviver()
	return err
}

// Reload closes the exports that the configuration now lacks or has changed, and those that have failed other than by
// the loss of their device, and opens the ones that are missing then. Exports in now.Refused stay as they are.
func (s *Set) Reload(now *config.Loaded) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	var gone []*export
	s.list = slices.DeleteFunc(s.list, func(e *export) bool {
		stays := slices.Contains(now.Refused, e.cfg.Name) ||
			e.isHealthy() && slices.ContainsFunc(now.Export, e.applyReload)
		if !stays {
			gone = append(gone, e)
		}
		return !stays
	})
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), now.Daemon.Grace.D())
	defer cancel()
	var errs []error
	for _, e := range gone {
		e.stop(ctx)
		errs = append(errs, e.free())
	}
	for _, c := range now.Export {
		if s.find(c.Name) == nil {
			errs = append(errs, s.Start(c))
		}
	}
	return errors.Join(errs...)
}

// all returns the exports.
func (s *Set) all() []*export {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// find returns the export of that name, nil for none.
func (s *Set) find(name string) *export {
	for _, e := range s.all() {
		if e.cfg.Name == name {
			return e
		}
	}
	return nil
}

// Len returns the number of exports.
func (s *Set) Len() int { return len(s.all()) }

// Flush writes all data that peers wrote to an export's file to disk.
func (s *Set) Flush(name string) error {
	e := s.find(name)
	if e == nil {
		return control.Errorf(control.CodeUnknown, "no export %q", name)
	}
	_, err := e.flush(0, 0)
	return err
}

// OnDeviceLost ends the exports of a lost device. They wait for its replacement.
func (s *Set) OnDeviceLost(v *device.Device, why error) {
	for _, e := range s.all() {
		if e.dev == v {
			e.failWith(why, true)
		}
	}
}

// AddTo adds the exports to a snapshot, with their connections if connections is true.
func (s *Set) AddTo(v *control.Snapshot, connections bool) {
	for _, e := range s.all() {
		e.addTo(v)
		if connections {
			e.addQPsTo(v)
		}
	}
}

// Stop closes the listeners and the connections of all exports, gracefully until ctx is done.
func (s *Set) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stopped = slices.Clone(s.list)
	list := s.stopped
	s.mu.Unlock()
	var group sync.WaitGroup
	for _, e := range list {
		group.Go(func() { e.stop(ctx) })
	}
	group.Wait()
}

// Free frees the memory of the exports that Stop has stopped.
func (s *Set) Free() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range s.stopped {
		errs = append(errs, e.free())
	}
	return errors.Join(errs...)
}

// WakeReviver makes ReviveLoop check the exports at once.
func (s *Set) WakeReviver() { s.wake.Set() }

// ReviveLoop opens waiting exports until ctx is done. An export waits for the replacement of its lost device, and keeps
// its memory meanwhile, or for a missing directory, port or address.
func (s *Set) ReviveLoop(ctx context.Context) {
	pause := reopenPause
	for ctx.Err() == nil {
		waiting := 0
		for _, e := range s.all() {
			v := device.Find(s.d.Devices(), e.cfg.Interface)
			if !e.isWaiting() || v.Core.Err() != nil {
				continue
			}
			waiting++
			if err := s.reopen(e, v); err == nil {
				pause = reopenPause
			} else if e.noteFailure(err) {
				e.log.Warn("cannot reopen export: retrying", "error", err,
					"next", remedy(&e.cfg, err))
			}
		}
		wake := time.After(pause)
		if waiting == 0 {
			wake, pause = nil, reopenPause
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
			pause = reopenPause
		case <-wake:
			pause = min(2*pause, reopenPauseMax)
		}
	}
}

// reopen opens a waiting export on v, which replaces its device if that was lost.
func (s *Set) reopen(e *export, v *device.Device) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if !slices.Contains(s.all(), e) {
		return nil // a reload has closed it
	}
	over, cancel := context.WithCancel(context.Background())
	cancel() // stop need not close connections gracefully: they have ended
	e.stop(over)
	before := e
	if e.content.isEmpty() {
		before = nil // it was never open and has no memory
	}
	next, err := s.openExport(e.cfg, v, before)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[slices.Index(s.list, e)] = next
	return nil
}

// applyReload returns true if c is the configuration of e except for keys that only affect new connections, and applies
// these. Connections and memory, with all written data, then stay. Otherwise it changes nothing and returns false.
func (e *export) applyReload(c config.Export) bool {
	same := e.cfg
	same.Connections, same.Allow = c.Connections, c.Allow
	if !reflect.DeepEqual(c, same) {
		return false
	}
	e.mu.Lock()
	e.cfg.Connections, e.cfg.Allow = c.Connections, c.Allow
	e.mu.Unlock()
	if e.srv != nil {
		e.srv.SetMaxClients(c.Connections)
	}
	return true
}
