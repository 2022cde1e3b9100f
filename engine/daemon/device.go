package daemon

import (
	"errors"
	"log/slog"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/device"
)

// device returns the device of that name, nil for none.
func (d *Daemon) device(name string) *device.Device { return device.Find(d.deviceList(), name) }

// logOf returns the log of a device.
func (d *Daemon) logOf(v *device.Device) *slog.Logger { return d.log.With("device", v.Name) }

// healthy returns why the watchdog must restart the daemon, nil when it need not.
func (d *Daemon) healthy() error {
	for _, v := range d.deviceList() {
		if err := v.Healthy(); err != nil {
			return err
		}
	}
	return nil
}

// reloadDevices applies the peers that may connect to each device, and the IPsec tables.
func (d *Daemon) reloadDevices(now *config.Loaded) error {
	var errs []error
	for _, n := range now.Interface {
		if v := d.device(n.Name); v != nil {
			errs = append(errs, v.SetAllow(n.Allow), v.SetIPsec(n.IPsec))
		}
	}
	return errors.Join(errs...)
}
