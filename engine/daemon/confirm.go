package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/host/vlan"
)

// ErrUnconfirmed is wrapped by the error of Run when the operator did not confirm in time.
var ErrUnconfirmed = errors.New("not confirmed in time")

// confirmation waits for the operator to confirm that this host is still reachable.
type confirmation struct {
	wait      time.Duration // 0: no confirmation is needed
	deadline  time.Time
	due       <-chan time.Time
	confirmed chan struct{} // closed by confirm

	mu    sync.Mutex
	state string // empty before start, and while a confirmation is pending
}

// confirmLate is the state if the deadline passed without a confirmation.
const confirmLate = "late"

// sessionWait is the default time for a confirmation when an interface carries the operator's session.
const sessionWait = time.Minute

// awaitConfirmation starts the wait if the configuration or the operator's session requires it.
func (d *Daemon) awaitConfirmation(cfg *config.Loaded, o *Options) error {
	command := "xwarp confirm"
	switch path := cfg.Daemon.OperatorSocket(); {
	case path != "" && path != control.OperatorPath(cfg.Daemon.Socket):
		command += " --socket " + path
	case cfg.Origins["daemon.socket"] != "":
		command += " --socket " + cfg.Daemon.Socket
	}
	wait := time.Duration(cfg.Daemon.Confirm)
	if cfg.Daemon.Confirm == config.AutoTimeUnset {
		name, err := d.sessionCarrier(o.SSHAddress)
		if err != nil {
			return fmt.Errorf("cannot find the interface of the SSH session at %s: %w "+
				"(daemon.confirm = \"0s\" skips this check)", o.SSHAddress, err)
		}
		wait = 0
		switch {
		case name == "":
		case cfg.Daemon.OperatorSocket() == "":
			d.log.Warn("your SSH session uses this interface, but there is no rollback: xwarp confirm needs daemon.admin_socket", "device", name,
				"next", "set daemon.admin_socket, or daemon.confirm = \"0s\"")
		default:
			wait = sessionWait
			d.log.Warn("your SSH session uses this interface: run xwarp confirm, or xwarpd removes its XDP programs and exits",
				"device", name,
				"session", o.SSHAddress, "within", wait, "next", command+
					" (daemon.confirm changes the time; \"0s\" disables this)")
		}
	} else if wait > 0 {
		d.log.Info("run xwarp confirm, or xwarpd removes its XDP programs and exits",
			"within", wait, "next", command)
	}
	after := o.After
	if after == nil {
		after = time.After
	}
	d.confirmation.start(wait, after)
	return nil
}

func (c *confirmation) start(wait time.Duration, after func(time.Duration) <-chan time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait <= 0 {
		c.state = control.ConfirmUnasked
		return
	}
	c.wait, c.deadline, c.confirmed, c.due = wait, time.Now().Add(wait), make(chan struct{}),
		after(wait)
}

// waitForDeadline returns nil when ctx is done, or an error that wraps ErrUnconfirmed if the deadline passes first
// without a confirmation.
func (c *confirmation) waitForDeadline(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.confirmed:
	case <-c.due:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.state == "" {
			c.state = confirmLate
			return fmt.Errorf("%w: %v", ErrUnconfirmed, c.wait)
		}
	}
	<-ctx.Done()
	return nil
}

// timeLeft returns the time left to confirm, or 0 if no confirmation is pending.
func (c *confirmation) timeLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != "" || c.wait == 0 {
		return 0
	}
	return max(time.Until(c.deadline), 1)
}

// confirm records the operator's confirmation.
func (c *confirmation) confirm() (r control.ConfirmResult, err error) {
	left := c.timeLeft()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == confirmLate:
		return r, control.Errorf(control.CodeClosed,
			"too late: not confirmed within %v; the daemon is shutting down", c.wait)
	case c.state == "" && c.wait == 0:
		return r, control.Errorf(control.CodeNotReady, "the daemon is still starting: try again")
	case c.state == "":
		close(c.confirmed)
		c.state = control.ConfirmAlready
		return control.ConfirmResult{State: control.ConfirmDone, Left: left.Seconds()}, nil
	}
	return control.ConfirmResult{State: c.state}, nil
}

// endUnconfirmed detaches the XDP programs and closes everything. It returns why, joined with the errors of closing.
func (d *Daemon) endUnconfirmed(why error) error {
	d.log.Warn("no xwarp confirm in time: removing the XDP programs and stopping", "after",
		d.confirmation.wait.String())
	err := d.detachAll() // first: the XDP programs may be what makes the host unreachable
	err = errors.Join(err, d.close(0))
	if err == nil {
		d.log.Warn("stopped without xwarp confirm: XDP programs detached, ports released",
			"interfaces", device.Names(d.deviceList()),
			"next",
			"start xwarpd again and run xwarp confirm in time, or change daemon.confirm")
	}
	return errors.Join(why, err)
}

// sessionCarrier returns the name of the device with XDP whose interface has the address local, itself or on a VLAN,
// bridge or bond above it. It returns "" if there is none.
func (d *Daemon) sessionCarrier(local netip.Addr) (string, error) {
	if !local.IsValid() {
		return "", nil
	}
	local = budget.Bare(local)
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	var holders []int
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == local {
			holders = append(holders, a.LinkIndex)
		}
	}
	for _, v := range d.deviceList() {
		if v.Config.Transport != config.TransportXDP {
			continue
		}
		l, err := netlink.LinkByIndex(v.Core.Transport().Ifindex)
		if err != nil {
			return "", err
		}
		l, _, _ = vlan.Trunk(l)
		index, master := l.Attrs().Index, l.Attrs().MasterIndex
		if slices.ContainsFunc(holders, func(h int) bool {
			return h == index || h == master || parentOf(h) == index
		}) {
			return v.Name, nil
		}
	}
	return "", nil
}

// parentOf returns the index of the interface below another one such as a VLAN, or 0 if there is none.
func parentOf(index int) int {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0
	}
	return l.Attrs().ParentIndex
}
