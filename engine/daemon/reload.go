package daemon

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
)

// ReloadConfig rereads the configuration and applies the part that needs no restart. If Options.Load fails, it changes
// nothing. It notifies systemd and logs errors.
func (d *Daemon) ReloadConfig() (r control.ReloadResult) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	defer notifyReload(time.Duration(now.Nano()))()
	cfg, err := d.reload()
	if err == nil {
		r.Applied, r.Path = true, cfg.Path
		r.Restart, err = d.apply(cfg)
	}
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
		if r.Applied {
			d.log.Error("reload incomplete: everything but what the error names was applied",
				"error", err, "next", "fix what the error names and reload again")
		} else {
			d.log.Error("reload failed: the old configuration stays", "error", err, "next",
				"fix the file and reload again")
		}
	}
	return r
}

// ApplyConfig applies a configuration. It logs the keys that need a restart.
func (d *Daemon) ApplyConfig(now *config.Loaded) error {
	_, err := d.apply(now)
	return err
}

// apply applies a configuration, and returns the keys that need a restart.
func (d *Daemon) apply(now *config.Loaded) (restart []string, err error) {
	old := d.cfg.Load()
	d.warnRemoved(now)
	restart = d.started.KeysNeedingRestart(now)
	d.pending.Store(&restart)
	for _, key := range restart {
		d.log.Warn("changed key needs a restart", "key", key, "next",
			"systemctl restart xwarpd")
	}
	err = errors.Join(now.RefusedBecause, d.reloadDevices(now))
	now.Interface = old.Interface
	d.cfg.Store(now)
	d.setLevel()
	d.setUserBounds(now)
	err = errors.Join(err, d.exports.Reload(now))
	if err == nil {
		d.log.Info("configuration reloaded", "path", now.Path)
	}
	return restart, err
}
