package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/xdp"
)

// Errors of devices that end the daemon.
var (
	errNoDevice = errors.New("no working device left")
	// ErrRestart is wrapped by the error of Run when a new process must open a lost device, because this one cannot, or
	// by the device's restart policy.
	ErrRestart = errors.New("a device can be reopened only by a new process")
)

// watchDevice waits until a device fails. Then it releases the interface, disconnects the programs that use the device,
// and ends its exports. Other devices are not affected. It reopens the interface by its restart policy and watches the
// new device. It calls lost with an error if the daemon must end.
func (d *Daemon) watchDevice(ctx context.Context, v *device.Device, lost func(error)) {
	for v != nil {
		select {
		case <-ctx.Done():
			return
		case <-v.Core.Failed():
		}
		err := fmt.Errorf("device %s: %w", v.Name, v.Core.Err())
		var closed <-chan struct{}
		if !v.NeverOpened {
			d.logOf(v).Error("device lost: disconnecting its programs, closing its exports; other devices are not affected",
				"error", err, "next", v.Remedy())
			closed = d.closeFailed(v, err)
			notify("STATUS=" + d.status())
		}
		v = d.reopen(ctx, v, err, closed, lost)
	}
}

// closeFailed closes a device that failed with err, and ends the sessions and exports on it. The channel that it
// returns is closed when the device is, which may be later.
func (d *Daemon) closeFailed(v *device.Device, err error) <-chan struct{} {
	v.ClosePortMapper()
	if err := v.Core.Detach(); err != nil {
		d.logOf(v).Warn("cannot detach the XDP program", "error", err)
	}
	closed := make(chan struct{})
	d.finishWithin(stopWait, "device "+v.Name, func() { // before unmapping the memory of programs
		defer close(closed)
		if err := v.Core.Close(); err != nil {
			d.logOf(v).Warn("cannot close the failed device cleanly", "error", err)
		}
	})
	for _, s := range d.allSessions() {
		if s.Uses(v) {
			s.Fail(control.Errorf(control.CodeClosed, "%v", err))
		}
	}
	d.exports.OnDeviceLost(v, err)
	return closed
}

// reopen reopens a device that was lost because of why, by its restart policy, once the interface is there. It returns
// the new device, or nil if the daemon ends or the device stays closed. closed is from closeFailed. If the old device
// cannot be closed, a new process must open the interface.
func (d *Daemon) reopen(ctx context.Context, v *device.Device, why error, closed <-chan struct{},
	lost func(error)) *device.Device {
	if v.Config.Restart == config.RestartNever && !v.NeverOpened {
		for _, other := range d.deviceList() {
			if other.Core.Err() == nil || other.Config.Restart != config.RestartNever {
				return nil
			}
		}
		lost(fmt.Errorf("%w: %w", errNoDevice, why))
		return nil
	}
	lastError := ""
	if v.NeverOpened {
		lastError = v.Core.Err().Error()
	}
	for pause := reopenPause; ctx.Err() == nil; pause = min(2*pause, reopenPauseMax) {
		var next *device.Device
		err := v.AwaitInterface(ctx)
		if err == nil && !v.NeverOpened && (v.Config.Restart == config.RestartExit ||
			!closesWithin(closeWait, closed)) {
			lost(fmt.Errorf("%w: %w", ErrRestart, why))
			return nil
		}
		if err == nil {
			next, err = d.opener.Open(v.Config, v)
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case err == nil:
			d.replace(v, next)
			return next
		case errors.Is(err, xdp.ErrSpent):
			lost(fmt.Errorf("%w: %w", ErrRestart, err))
			return nil
		case err.Error() != lastError:
			lastError = err.Error()
			d.logOf(v).Warn("cannot reopen device: retrying", "error", err)
		}
		sleepFor(ctx, pause)
	}
	return nil
}

// closesWithin reports whether a channel is closed within most.
func closesWithin(most time.Duration, ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-time.After(most):
		return false
	}
}

// replace replaces a lost device by a new one, and reopens its exports.
func (d *Daemon) replace(old, v *device.Device) {
	d.mu.Lock()
	stopping, due := d.stopping, d.keepsRights
	if !stopping {
		d.devices[slices.Index(d.devices, old)] = v
	}
	d.mu.Unlock()
	if stopping {
		v.ClosePortMapper()
		v.Core.Close()
		return
	}
	if !old.NeverOpened {
		d.logOf(v).Info("device is open again", "opened_again", v.Reopened())
	}
	d.ReserveProcessors()
	if due {
		if err := d.DropRights(); err != nil {
			d.logOf(v).Error("cannot drop capabilities: xwarpd keeps more rights than it needs",
				"error", err, "next", "systemctl restart xwarpd")
		}
	}
	notify("STATUS=" + d.status())
	d.exports.WakeReviver()
}

// deviceList returns the devices.
func (d *Daemon) deviceList() []*device.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.devices)
}

func sleepFor(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}
