// Package napi changes settings of NAPI instances, and offloads of interfaces, for the lifetime of a process. A second
// process restores them, because the kernel keeps them when the first one is killed.
package napi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/cleaner"
	"xwarp/engine/host/capability"
	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// Restorer changes settings and restores them when Close is called or this process ends. A second process, started with
// the first change in the network namespace of the calling thread, restores them then. It is this program again,
// started with an argument that init handles, so it is available to any program that uses the engine. It needs
// CAP_NET_ADMIN. The zero value has changed nothing.
type Restorer struct {
	process *cleaner.Process // nil before the first change
	before  []setting        // previous settings, also passed to the process
}

// setting is a previous state: of an offload if Feature is set, else of a NAPI instance.
type setting struct {
	NAPI     ring.NAPI
	Ifindex  int // interface of Feature or of the NAPI instance
	Feature  string
	On       bool
	Record   string // path of Feature's record, which is removed afterwards
	Restored bool   // the settings passed before this one are restored already
}

// restartWait is how long the restoring process waits for a NAPI instance that does not exist. Some drivers restart the
// card when its XDP program is removed (igb): they delete the instance, and add it again with its ID and its settings.
const restartWait = 5 * time.Second

// processName is the first argument of the restoring process.
const processName = "xwarp-napi-restorer"

func init() {
	if len(os.Args) == 1 && os.Args[0] == processName {
		os.Exit(restoreAtEnd())
	}
}

// Change changes the settings of a NAPI instance of an interface to n. Close restores before, or zeros if before equals
// n.
func (r *Restorer) Change(ifindex int, before, n ring.NAPI) error {
	if before == n { // n was left by a program that was killed together with its restoring process
		before = ring.NAPI{ID: n.ID}
	}
	if err := r.remember(setting{NAPI: before, Ifindex: ifindex}); err != nil {
		return err
	}
	return ring.SetNAPI(n)
}

// SetFeature switches an offload of an interface of the calling thread's network namespace on or off. Only the first
// call for an offload has an effect. It changes nothing, and Close then restores nothing, if the offload has that state
// already and was not left in it by a killed program.
func (r *Restorer) SetFeature(ifindex int, feature string, on bool) error {
	if slices.ContainsFunc(r.before, func(s setting) bool {
		return s.Ifindex == ifindex && s.Feature == feature
	}) {
		return nil
	}
	name, err := nameOf(ifindex)
	if err != nil {
		return err
	}
	record := recordOf(ifindex, feature)
	left := wasLeft(record)
	f, err := ethtool.Features(name)
	if err != nil || f[feature].On == on && !left {
		return err
	}
	if err := r.remember(setting{Ifindex: ifindex, Feature: feature, On: !on,
		Record: record}); err != nil {
		return err
	}
	writeRecord(record, r.process.Process.Pid)
	return ethtool.SetFeature(name, feature, on)
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

// remember passes a setting to the process, which it starts first if necessary.
func (r *Restorer) remember(s setting) error {
	if r.process == nil {
		p, err := cleaner.Start([]string{processName}, unix.CAP_NET_ADMIN)
		if err != nil {
			return err
		}
		r.process = p
	}
	if err := json.NewEncoder(r.process.Pipe).Encode(s); err != nil {
		return fmt.Errorf("the restoring process has exited: %w", err)
	}
	r.before = append(r.before, s)
	return nil
}

// Close restores the settings. If this process has dropped the privileges that this needs, the restoring process does
// it, and Close waits for that. Close does not wait for NAPI instances that the driver has deleted; that process does.
// The calling thread must be in the namespace of the first change.
func (r *Restorer) Close() error {
	if r.process == nil {
		return nil
	}
	left, err := restore(r.before, ring.SetNAPI)
	if err == nil {
		_ = r.remember(setting{Restored: true}) // fails if the process was killed
		for _, s := range left {
			_ = r.remember(s)
		}
	}
	r.process.Pipe.Close()
	if err == nil { // on a busy machine it takes long to end
		go r.process.Wait()
		return nil
	}
	if r.process.Wait() == nil {
		return nil
	}
	return err
}

// restoreAtEnd is the body of the process. It returns the exit status.
func restoreAtEnd() int {
	capability.Keep(1 << unix.CAP_NET_ADMIN) // fails in a program with cgo
	cleaner.Ready()
	if err := restoreFrom(os.Stdin, ring.SetNAPI); err != nil {
		fmt.Fprintln(os.Stderr, "xwarp: settings of an interface are not restored:", err,
			"(xwarp doctor --fix; ethtool -K IFACE gro off rxvlan on)")
		return 1
	}
	return 0
}

// restoreFrom reads settings until its input ends, and applies them. setNAPI is ring.SetNAPI.
func restoreFrom(input io.Reader, setNAPI func(ring.NAPI) error) error {
	var list []setting
	for d := json.NewDecoder(input); ; {
		var s setting
		if d.Decode(&s) != nil {
			break
		}
		if list = append(list, s); s.Restored {
			list = nil
		}
	}
	list, err := restore(list, setNAPI)
	for end := time.Now().Add(restartWait); len(list) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		var failed error
		list, failed = restore(list, setNAPI)
		err = errors.Join(err, failed)
	}
	return err
}

// restore applies settings, oldest last. It skips interfaces that are gone. left are the settings of NAPI instances
// that do not exist although their interface does. setNAPI is ring.SetNAPI.
func restore(list []setting, setNAPI func(ring.NAPI) error) (left []setting, err error) {
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		switch err := list[i].apply(setNAPI); {
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		case list[i].Feature == "":
			if _, err := nameOf(list[i].Ifindex); err == nil {
				left = slices.Insert(left, 0, list[i])
			}
		}
	}
	return left, errors.Join(errs...)
}

func (s *setting) apply(setNAPI func(ring.NAPI) error) error {
	if s.Feature == "" {
		return setNAPI(s.NAPI)
	}
	name, err := nameOf(s.Ifindex)
	if err == nil {
		err = ethtool.SetFeature(name, s.Feature, s.On)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		clearRecord(s.Record)
	}
	return err
}
