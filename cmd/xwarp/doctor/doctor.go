// Package doctor checks whether a host can run iWARP over AF_XDP, fixes problems and can undo the fixes. Each check has
// the function look, and settings if it can fix what it finds. All checks apply to the network namespace of the calling
// thread.
package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	"xwarp/engine/daemon/config"
	"xwarp/engine/host/ntuple"
	"xwarp/engine/host/vlan"
	"xwarp/ring"
)

// Status is the verdict of a check.
type Status string

// The verdicts, best first.
const (
	OK   Status = "ok"
	Warn Status = "warn" // works, but slower or not with every peer
	Fail Status = "fail" // does not work
)

// Line is the result of one check.
type Line struct {
	Check  string `json:"check" doc:"name of the check"`
	Status Status `json:"status" doc:"\"ok\", \"warn\" (works, but slower or not with every peer) or \"fail\" (does not work)"`
	What   string `json:"what" doc:"finding"`
	Why    string `json:"why" doc:"why it matters"`
	Remedy string `json:"remedy,omitempty" doc:"command that fixes it"`
	Fix    bool   `json:"fix" doc:"--fix can fix it"`
	Fixed  bool   `json:"fixed" doc:"this run fixed it"`
	Error  string `json:"error,omitempty" doc:"why --fix failed"`
}

// Options select the checks. Zero fields mean defaults.
type Options struct {
	Interface string   // network interface; empty: only check the host
	Queues    []int    // receive queues to serve; empty: all
	Ports     []uint16 // TCP ports that xwarp listens on; with SteerDial, those of peers
	HugePages bool     // check for 2 MiB pages for frames
	Measure   bool     // send frames for two seconds to find the fastest transmit mode
	Steer     string   // check that connections of Ports arrive on Queues: SteerListen and so on; empty: do not check

	Config string // configuration of the daemon, for IPsec; empty: [config.DefaultPath], if it exists

	Only string // name of the only check to run; empty: all

	card ntuple.Card // used by tests instead of the device
}

// env is the state of the host for the checks.
type env struct {
	opt          Options
	nic          netlink.Link // interface that has the sockets: top, or the parent of a VLAN; nil without an interface
	top          netlink.Link // Options.Interface
	whyNotShared error        // why a VLAN does not use the sockets of its parent; otherwise nil
	trial        trial        // result of attaching and binding

	config func() (*config.Loaded, error) // configuration of the daemon, read once
}

// finding is the result of a check's look.
type finding struct {
	status Status
	what   string
	remedy string // command, may be empty
}

func fine(format string, args ...any) finding { return found(OK, format, args...) }
func warn(format string, args ...any) finding { return found(Warn, format, args...) }
func fail(format string, args ...any) finding { return found(Fail, format, args...) }

func found(s Status, format string, args ...any) finding {
	return finding{status: s, what: fmt.Sprintf(format, args...)}
}

// advise returns f with a remedy.
func (f finding) advise(format string, args ...any) finding {
	f.remedy = fmt.Sprintf(format, args...)
	return f
}

// check is one check of the host. Without want it has no fix.
type check struct {
	name, why string
	nic       bool // needs an interface
	look      func(*env) finding
	want      func(*env) (settings, error)             // new values of the settings, for --fix
	get       func(e *env, key string) (string, error) // reads a setting
	put       func(e *env, key, value string) error    // changes a setting
}

// settings are values by key.
type settings map[string]string

// checks are all checks, in the order of the output.
var checks = []*check{
	&kernelCheck, &lockdownCheck, &capabilityCheck, &memlockCheck, &hugePageCheck, &nativeCheck,
	&genericCheck, &copyCheck,
	&interfaceCheck, &bondCheck, &foreignCheck, &zeroCopyCheck, &mtuCheck, &steeringCheck,
	&channelCheck, &rssCheck, &ringCheck,
	&lroCheck, &groCheck, &mergeCheck, &transmitCheck,
	&vlanCheck, &firewallCheck, &ipsecKernelCheck, &ipsecDaemonCheck, &ipsecTableCheck,
	&busyPollCheck, &numaCheck, &portCheck,
}

// Look runs the checks. It changes no setting.
func Look(o Options) ([]Line, error) {
	return run(o, (*check).line)
}

// Fix runs the checks and fixes the problems that it can. It first saves the old values to the file named state.
func Fix(o Options, state string) ([]Line, error) {
	return run(o, func(c *check, e *env) Line {
		l := c.line(e)
		if l.Status != OK && l.Fix {
			if err := c.apply(e, state); err != nil {
				l.Error = err.Error()
			} else if after := c.line(e); after.Status == OK {
				l, l.Fixed = after, true
			} else {
				l.Error = "the fix had no effect: " + after.What
			}
		}
		return l
	})
}

// run calls line for each selected check that applies to the host, and returns the results.
func run(o Options, line func(*check, *env) Line) (lines []Line, err error) {
	named := func(c *check) bool { return o.Only == "" || o.Only == c.name }
	if !slices.ContainsFunc(checks, named) {
		return nil, fmt.Errorf("unknown check %q", o.Only)
	}
	e, done, err := newEnv(o)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, c := range checks {
		if (!c.nic || e.nic != nil) && named(c) {
			lines = append(lines, line(c, e))
		}
	}
	return lines, nil
}

func newEnv(o Options) (e *env, done func(), err error) {
	runtime.LockOSThread()
	e = &env{opt: o, config: sync.OnceValues(func() (*config.Loaded, error) {
		return config.Load(config.Source{Path: o.Config, Env: os.Environ()})
	})}
	if o.Interface != "" {
		if e.top, err = netlink.LinkByName(o.Interface); err != nil {
			runtime.UnlockOSThread()
			return nil, nil, fmt.Errorf("interface %q: %w (see: ip -br link)", o.Interface, err)
		}
		e.nic, _, e.whyNotShared = vlan.Trunk(e.top)
	}
	if len(o.Queues) == 0 {
		e.opt.Queues = []int{0}
		for q := 1; e.nic != nil && q < min(e.receiveQueues(), ring.MaxQueues); q++ {
			e.opt.Queues = append(e.opt.Queues, q)
		}
	}
	return e, runtime.UnlockOSThread, nil
}

// name returns the name of the interface with the sockets.
func (e *env) name() string { return e.nic.Attrs().Name }

func (c *check) line(e *env) Line {
	f := c.look(e)
	return Line{Check: c.name, Status: f.status, What: f.what, Why: c.why, Remedy: f.remedy,
		Fix: c.want != nil}
}

// putAll applies settings: the new ones of a fix, or the old ones to undo it.
func (c *check) putAll(e *env, s settings) (err error) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		err = errors.Join(err, c.put(e, key, s[key]))
	}
	return err
}

func (c *check) apply(e *env, state string) error {
	want, err := c.want(e)
	before := settings{}
	for key := range want {
		value, failed := c.get(e, key)
		before[key], err = value, errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("save old settings: %w", err)
	}
	if err := appendRecord(state, record{c.name, e.opt.Interface, before}); err != nil {
		return err
	}
	return c.putAll(e, want)
}

var interfaceCheck = check{
	name: "interface", nic: true,
	why: "xwarp needs an Ethernet interface that is up and has an address that peers can reach",
	look: func(e *env) finding {
		a := e.top.Attrs()
		shared, other := sharedAddress(a.Index)
		addrs, err := netlink.AddrList(e.top, netlink.FAMILY_ALL)
		global := 0
		for _, ad := range addrs {
			if ad.IP.IsGlobalUnicast() {
				global++
			}
		}
		switch {
		case len(a.HardwareAddr) != 6:
			return fail("%s (%s) has no Ethernet address", a.Name, e.top.Type()).
				advise("ip -br link")
		case a.Flags&net.FlagUp == 0:
			return fail("%s is down", a.Name).advise("ip link set %s up", a.Name)
		case a.OperState == netlink.OperDown || a.OperState == netlink.OperLowerLayerDown:
			return warn("%s has no carrier", a.Name).advise("ip -br link")
		case err == nil && global == 0:
			return warn("%s has no address", a.Name).
				advise("ip addr add ADDRESS/LENGTH dev %s", a.Name)
		case shared != nil:
			return warn("%v of %s is also on %s: connections through one of them get no answer",
				shared.IP, a.Name, other).advise("ip addr del %v dev %s", shared.IPNet, a.Name)
		}
		return fine("%s (%s) is up", a.Name, e.top.Type())
	},
}

// sharedAddress returns an address of an interface that another interface has too, and the name of that one. Frames for
// an address of lo arrive at all interfaces, so lo does not count.
func sharedAddress(ifindex int) (shared *netlink.Addr, other string) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, ""
	}
	for i := range all {
		for _, b := range all {
			if all[i].LinkIndex != ifindex || b.LinkIndex == ifindex || !b.IP.Equal(all[i].IP) ||
				!b.IP.IsGlobalUnicast() {
				continue
			}
			l, err := netlink.LinkByIndex(b.LinkIndex)
			if err == nil && l.Attrs().Flags&net.FlagLoopback == 0 {
				return &all[i], l.Attrs().Name
			}
		}
	}
	return nil, ""
}
