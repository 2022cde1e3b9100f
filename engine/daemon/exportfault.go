package daemon

import "context"

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

// lose makes the export fail.
func (e *export) lose(why error) {
	e.mu.Lock()
	e.failed = why
	var conns []*exportConn
	for _, c := range e.conns {
		conns = append(conns, c)
	}
	e.mu.Unlock()
	e.d.log.Error("export failed; its connections end, and new ones are rejected", "export",
		e.cfg.Name, "path", e.cfg.Path, "error", why,
		"next", "see the error; when its cause is gone: systemctl reload xwarpd")
	for _, c := range conns {
		c.qp.Disconnect()
	}
}

// failure returns why the memory of the export is of no use, nil while it is.
func (e *export) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}
