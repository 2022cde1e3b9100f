package daemon

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"xwarp/engine/daemon/config"
)

// reloadExports closes what is gone or different and opens what is new.
func (d *Daemon) reloadExports(now *config.Loaded) error {
	d.exporting.Lock()
	defer d.exporting.Unlock()
	d.mu.Lock()
	var gone []*export
	d.exports = slices.DeleteFunc(d.exports, func(e *export) bool {
		stays := slices.Contains(now.Refused, e.cfg.Name) ||
			e.healthy() && slices.ContainsFunc(now.Export, e.adopt)
		if !stays {
			gone = append(gone, e)
		}
		return !stays
	})
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), now.Daemon.Grace.D())
	defer cancel()
	var errs []error
	for _, e := range gone {
		e.stop(ctx)
		d.remember(e)
		errs = append(errs, e.free())
	}
	for _, c := range now.Export {
		if d.export(c.Name) == nil {
			errs = append(errs, d.startExport(c))
		}
	}
	return errors.Join(errs...)
}

// adopt takes over what counts for further connections alone, and reports whether that is all that c changes:
// memory, with what peers wrote there, and connections stay.
func (e *export) adopt(c config.Export) bool {
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
