package daemon

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/daemon/session"
)

// daemonAPI implements the interfaces by which sessions and exports use the daemon.
type daemonAPI struct{ d *Daemon }

// Config implements session.Daemon.
func (h daemonAPI) Config() *config.Loaded { return h.d.cfg.Load() }

// Devices implements session.Daemon and export.Daemon.
func (h daemonAPI) Devices() []*device.Device { return h.d.deviceList() }

// Sessions implements session.Daemon.
func (h daemonAPI) Sessions() []*session.Session { return h.d.allSessions() }

// Snapshot implements session.Daemon.
func (h daemonAPI) Snapshot(only *budget.Holder) control.Snapshot { return h.d.snapshotOf(only) }

// Confirm implements session.Daemon. When the daemon is confirmed, Confirm also updates the status that systemctl
// shows.
func (h daemonAPI) Confirm() (control.ConfirmResult, error) {
	r, err := h.d.confirmation.confirm()
	if err == nil && r.State == control.ConfirmDone {
		notify("STATUS=" + h.d.status())
	}
	return r, err
}

// ReloadConfig implements session.Daemon. It fails if the daemon was started without a configuration file.
func (h daemonAPI) ReloadConfig() (r control.ReloadResult, err error) {
	if h.d.reload == nil {
		return r, control.Errorf(control.CodeNotReady,
			"this daemon was started without a configuration file")
	}
	return h.d.ReloadConfig(), nil
}

// FlushExport implements session.Daemon.
func (h daemonAPI) FlushExport(name string) error { return h.d.exports.Flush(name) }

// Forget implements session.Daemon. It also counts the session as ended.
func (h daemonAPI) Forget(s *session.Session) {
	h.d.mu.Lock()
	delete(h.d.sessions, s.ID())
	h.d.mu.Unlock()
	h.d.count.SessionsEnded.Add(1)
}

// ReportDefect implements session.Daemon and export.Daemon. It counts and logs a panic with value v. The deferred
// function that recovers must call it, so that the logged stack is that of the panic.
func (h daemonAPI) ReportDefect(log *slog.Logger, doing string, v any) {
	h.d.count.Defects.Add(1)
	log.Error("bug in xwarpd: request or connection aborted; others are not affected", "doing", doing,
		"panic", fmt.Sprint(v),
		"stack", string(debug.Stack()), "next", "report this line")
}
