package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"xwarp/engine/daemon/session"
)

// Close stops the daemon. It accepts no more programs and connections, closes connections gracefully within the grace
// period, then closes everything and restores the interfaces. Programs and peers cannot delay it: it logs what has not
// ended in time, and returns an error. A second call does nothing and returns nil.
func (d *Daemon) Close() error { return d.close(d.cfg.Load().Daemon.Grace.D()) }

func (d *Daemon) close(grace time.Duration) error {
	d.mu.Lock()
	again := d.stopping
	d.stopping = true
	web := d.web
	d.mu.Unlock()
	if again {
		return nil
	}
	defer d.stopEvents()
	d.sysfs.close() // before another daemon may use the sockets
	for _, ln := range append([]*unixListener{d.socket, d.admin}, d.tenants...) {
		if ln != nil {
			ln.Close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { web.stop(ctx) })
	group.Go(func() { d.exports.Stop(ctx) })
	sessions := d.allSessions()
	for _, s := range sessions {
		group.Go(func() { s.Shutdown(ctx) })
	}
	d.finishWithin(grace+stopWait, "connections", group.Wait)
	errs := []error{d.detachAll()}
	for _, s := range sessions {
		s.Fail(session.ErrShutdown)
	}
	closed := d.finishWithin(closeWait, "devices", func() { errs = append(errs, d.closeDevices()) })
	ended := d.finishWithin(stopWait, "sessions and exports", func() {
		group.Wait()
		d.running.Wait()
	})
	if !closed || !ended {
		return fmt.Errorf("shutdown incomplete %v after the grace period: the interfaces are "+
			"released; the rest is freed when the process exits", 2*stopWait+closeWait)
	}
	errs = append(errs, d.exports.Free())
	d.mapper.Close()
	return errors.Join(errs...)
}

// finishWithin runs f and reports whether it returned within most. If it did not, finishWithin logs that, and f goes
// on.
func (d *Daemon) finishWithin(most time.Duration, what string, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	if !closesWithin(most, done) {
		d.log.Warn("shutdown step timed out: continuing", "what", what, "after",
			most)
		return false
	}
	return true
}

// detachAll detaches the steering programs from the interfaces. From then on the host gets all frames.
func (d *Daemon) detachAll() error {
	var errs []error
	for _, v := range d.deviceList() {
		errs = append(errs, v.Core.Detach())
	}
	return errors.Join(errs...)
}

func (d *Daemon) closeDevices() error {
	list := d.deviceList()
	errs := make([]error, len(list))
	var group sync.WaitGroup
	for i, v := range list {
		group.Go(func() { errs[i] = v.Close() })
	}
	group.Wait()
	return errors.Join(errs...)
}
