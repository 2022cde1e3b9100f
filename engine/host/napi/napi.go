// Package napi changes settings of NAPI instances, and offloads of interfaces, for the lifetime of a process. A second
// process restores them, because the kernel keeps them when the first one is killed.
package napi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/capability"
	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// Restorer is the process that restores settings when this process ends or calls Close. It is this program again,
// started with an argument that init handles, so it is available to any program that uses the engine.
type Restorer struct {
	process *exec.Cmd
	pipe    io.WriteCloser // to the process, which restores at end of file
	before  []setting      // passed to the process
}

// setting is a previous state: that of a NAPI instance, of an interface whose GRO was off, or of one that removed VLAN
// tags.
type setting struct {
	NAPI     ring.NAPI
	GROOff   int    // index of the interface; 0: another setting applies
	Record   string // of GROOff, to be removed
	Strips   int    // index of the interface that removed tags; 0: another setting applies
	Restored bool   // all previous settings are restored already
}

// processName is the first argument of the restoring process.
const processName = "xwarp-napi-restorer"

// ready is printed by the process once no signal can end it before it has restored.
const ready = "ready\n"

func init() {
	if len(os.Args) == 1 && os.Args[0] == processName {
		os.Exit(restoreAtEnd(os.Stdin, os.Stdout))
	}
}

// Start starts the process, in the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func Start() (*Restorer, error) {
	c := &exec.Cmd{Path: "/proc/self/exe", Args: []string{processName}, Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, Stderr: os.Stderr}
	c.SysProcAttr = &syscall.SysProcAttr{ // its own session, so that signals to the process group do not reach it
		Setsid: true, AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the restoring process: %w", err)
	}
	r := &Restorer{process: c, pipe: in}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != ready {
		return nil, errors.Join(fmt.Errorf("the restoring process printed %q: %w",
			line, err), r.Close())
	}
	return r, nil
}

// Change changes the settings of a NAPI instance from before, which is restored at the end, to n.
func (r *Restorer) Change(before, n ring.NAPI) error {
	if before == n { // left by processes that were killed together
		before = ring.NAPI{ID: n.ID}
	}
	if err := r.remember(setting{NAPI: before}); err != nil {
		return err
	}
	return ring.SetNAPI(n)
}

// EnableGRO switches GRO of an interface of the calling thread's network namespace on.
func (r *Restorer) EnableGRO(ifindex int) error {
	name, err := nameOf(ifindex)
	if err != nil {
		return err
	}
	record := recordOf(ifindex)
	left := wasLeft(record)
	if on, err := ethtool.Value(name, unix.ETHTOOL_GGRO, 0); err != nil || on != 0 && !left {
		return err
	}
	if err := r.remember(setting{GROOff: ifindex, Record: record}); err != nil {
		return err
	}
	writeRecord(record, r.process.Process.Pid)
	return setGRO(name, 1)
}

// KeepVLANTags makes an interface of the calling thread's network namespace leave the VLAN tags in received frames.
func (r *Restorer) KeepVLANTags(ifindex int) error {
	name, err := nameOf(ifindex)
	if err != nil {
		return err
	}
	if err := r.remember(setting{Strips: ifindex}); err != nil {
		return err
	}
	return ethtool.SetFeature(name, ethtool.VLANStripping, false)
}

func nameOf(ifindex int) (string, error) {
	nic, err := netlink.LinkByIndex(ifindex)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		err = fs.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("interface %d: %w", ifindex, err)
	}
	return nic.Attrs().Name, nil
}

func setGRO(name string, on uint32) error {
	if _, err := ethtool.Value(name, unix.ETHTOOL_SGRO, on); err != nil {
		return fmt.Errorf("GRO of %s: %w", name, err)
	}
	return nil
}

// remember passes a setting to the process.
func (r *Restorer) remember(s setting) error {
	if err := json.NewEncoder(r.pipe).Encode(s); err != nil {
		return fmt.Errorf("the restoring process has exited: %w", err)
	}
	r.before = append(r.before, s)
	return nil
}

// Close restores the settings. If this process has dropped the privileges that this needs, it waits for the restoring
// process to do so. A nil Restorer has nothing to restore. The calling thread must be in the namespace of Start.
func (r *Restorer) Close() error {
	if r == nil {
		return nil
	}
	err := restore(r.before)
	if err == nil {
		_ = r.remember(setting{Restored: true}) // fails if the process was killed
	}
	r.pipe.Close()
	if err == nil { // on a busy machine it takes long to end
		go r.process.Wait()
		return nil
	}
	if r.process.Wait() == nil {
		return nil
	}
	return err
}

// restoreAtEnd is the body of the process. It reads settings until in ends, applies them, and returns the exit status.
func restoreAtEnd(in io.Reader, out io.Writer) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	capability.Keep(1 << unix.CAP_NET_ADMIN) // fails in a program with cgo
	io.WriteString(out, ready)
	var list []setting
	for d := json.NewDecoder(in); ; {
		var s setting
		if d.Decode(&s) != nil {
			break
		}
		if list = append(list, s); s.Restored {
			list = nil
		}
	}
	if err := restore(list); err != nil {
		fmt.Fprintln(os.Stderr, "xwarp: settings of an interface are not restored:", err,
			"(xwarp doctor --fix; ethtool -K IFACE gro off rxvlan on)")
		return 1
	}
	return 0
}

// restore applies settings, oldest last. It skips instances and interfaces that are gone.
func restore(list []setting) error {
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		if err := list[i].apply(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *setting) apply() error {
	if s.GROOff == 0 && s.Strips == 0 {
		return ring.SetNAPI(s.NAPI)
	}
	name, err := nameOf(s.GROOff + s.Strips)
	switch {
	case err != nil:
		return err
	case s.Strips != 0:
		return ethtool.SetFeature(name, ethtool.VLANStripping, true)
	}
	if err := setGRO(name, 0); err != nil {
		return err
	}
	clearRecord(s.Record)
	return nil
}
