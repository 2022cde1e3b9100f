package daemon

import (
	"context"
	"maps"
	"slices"
)

// guard waits for the moment when the memory of an export cannot be accessed. The export fails then, and it
// alone: its connections end, new ones are rejected, and a reload opens it again.
func (e *export) guard(ctx context.Context, failed <-chan struct{}, why func() error) {
	select {
	case <-ctx.Done():
		return
	case <-failed:
	}
	e.lose(why())
}

// lose makes the export fail because its memory is lost.
func (e *export) lose(why error) {
	e.log.Error("export failed; its connections end, and new ones are rejected", "path",
		e.cfg.Path, "error", why,
		"next", "see the error; when its cause is gone: systemctl reload xwarpd")
	e.end(why, false)
}

// end ends the connections of an export that failed.
func (e *export) end(why error, device bool) {
	e.mu.Lock()
	if e.failed == nil { // what came first is the cause
		e.failed, e.cutOff = why, device
	}
	conns := slices.Collect(maps.Values(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		c.qp.Disconnect()
	}
}

// failure returns why the export is of no use, nil while it is.
func (e *export) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// healthy reports whether the export works, or will when its device is back.
func (e *export) healthy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed == nil || e.cutOff
}

// inherit takes over the memory of another export, which is stopped.
func (e *export) inherit(from *export) {
	from.mu.Lock()
	had := from.content
	from.content = content{}
	from.mu.Unlock()
	e.mu.Lock()
	e.content = had
	e.mu.Unlock()
}

// reviveExport opens an export that its device's loss cut off on another device.
func (d *Daemon) reviveExport(e *export, v *device) error {
	d.exporting.Lock()
	defer d.exporting.Unlock()
	if !slices.Contains(d.exportsOf(e.dev), e) {
		return nil // a reload came before
	}
	over, cancel := context.WithCancel(context.Background())
	cancel() // its connections are gone
	e.stop(over)
	next, err := d.openExport(e.cfg, v, e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remember(e)
	d.exports[slices.Index(d.exports, e)] = next
	return nil
}
