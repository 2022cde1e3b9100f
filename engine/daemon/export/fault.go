package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
)

// watchMemory waits until the memory of the export becomes inaccessible. Then the export fails: its connections are
// closed, new ones rejected, and a reload reopens it.
func (e *export) watchMemory(ctx context.Context, failed <-chan struct{}, why func() error) {
	select {
	case <-ctx.Done():
		return
	case <-failed:
	}
	err := why()
	e.log.Error("export failed: closing its connections, rejecting new ones", "path",
		e.cfg.Path, "error", err,
		"next", "fix the cause, then systemctl reload xwarpd")
	e.failWith(err, false)
}

// failWith marks the export as failed and closes its connections. If wait is true, ReviveLoop reopens it.
func (e *export) failWith(why error, wait bool) {
	e.mu.Lock()
	if e.failed == nil { // the first error is the cause
		e.failed, e.waiting = why, wait
	}
	conns := slices.Collect(maps.Values(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		c.qp.Disconnect()
	}
}

// failure returns why the export is unusable, or nil.
func (e *export) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// isHealthy reports whether the export works, or only waits for its device.
func (e *export) isHealthy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed == nil || e.waiting && e.dev.Core.Err() != nil
}

// isWaiting reports whether ReviveLoop reopens the export.
func (e *export) isWaiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting
}

// noteFailure records why the export still cannot be opened, and reports whether the reason has changed.
func (e *export) noteFailure(why error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	other := e.failed == nil || e.failed.Error() != why.Error()
	e.failed = why
	return other
}

// remedy returns the next step after an export could not be opened because of err.
func remedy(c *config.Export, err error) string {
	const owner = "; its owner must be xwarpd's user: xwarp, under the unit"
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Sprintf("stop the program that uses the port (ss -tlnp sport = :%d), or "+
			"change listen", c.Listen.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "add the address to this host (ip addr), or change listen"
	case errors.Is(err, fs.ErrNotExist) && c.Serve == config.ServeDirectory:
		return "install -d -o xwarp -g xwarp " + c.Path + owner
	case errors.Is(err, fs.ErrNotExist):
		return "install -d -o xwarp -g xwarp " + filepath.Dir(c.Path) + owner
	case errors.Is(err, fs.ErrPermission) && c.Serve == config.ServeDirectory:
		return "export a directory of xwarpd: install -d -o xwarp -g xwarp /var/lib/xwarp/NAME" +
			owner
	case errors.Is(err, fs.ErrPermission):
		return "chown xwarp " + c.Path + owner
	case errors.Is(err, unix.EROFS):
		return "the unit allows writes below /var/lib/xwarp only: systemctl edit xwarpd, then [Service] ReadWritePaths=" + c.Path
	}
	return "see the error; xwarp config check tests a start on this host"
}

// takeContent moves the content of another, stopped export to e.
func (e *export) takeContent(from *export) {
	from.mu.Lock()
	had := from.content
	from.content = content{}
	from.mu.Unlock()
	e.mu.Lock()
	e.content = had
	e.mu.Unlock()
}
