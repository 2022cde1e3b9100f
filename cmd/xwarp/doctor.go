package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/doctor"
	"xwarp/engine/daemon/config"
	"xwarp/engine/plain"
	"xwarp/engine/ranges"
)

// doctorInfo is the output of doctor.
type doctorInfo struct {
	document
	OK     bool            `json:"ok" doc:"no check failed"`
	Lines  []doctor.Line   `json:"lines" doc:"results, one per check"`
	Undone []doctor.Undone `json:"undone" doc:"fixes that --undo reverted"`
}

func newDoctor(g *global) *cobra.Command {
	var o doctor.Options
	var report reportFlags
	var queues string
	var ports []uint
	fix, undo := false, false
	state := ""
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host, fix problems, undo fixes",
		Long: `doctor checks the kernel, the privileges of this process, and with --interface a network interface. Each result is ok,
warn (works, but slower or not with every peer) or fail (does not work). Warnings and failures come with the reason and
the command that fixes them. The last two checks are for programs started by "xwarp run": whether the preloaded library
is there, and whether this user may connect to xwarpd. doctor also attaches an XDP program and binds an AF_XDP socket: on
the interface if that is safe, otherwise on a temporary veth pair.

--fix applies the fixes it can and records the previous settings in the --state file; --undo restores them in reverse
order. The state file must be in a directory that only root can write to.

--measure sends frames for two seconds to compare the transmit modes of the interface (xdp, packet-gso). The
frames are MTU-sized; their source and destination are the interface's own Ethernet address, so the next switch drops
them.

--steer checks the n-tuple rules of a NIC that supports them (mlx5, ice, i40e, ixgbe, bnxt, ...); with --fix it installs
them. The rules direct TCP connections on the ports of --port to the receive queues of --queues. These must be the queues
that xwarpd serves (key queues of [[interface]]). The RSS table keeps other traffic on the other queues. --port
lists every port of xwarpd: connections on any other port arrive on queues that xwarpd does not serve, and stall. These
are local ports with --steer=listen, ports of peers with --steer=dial, and either with --steer or --steer=both. If
--queues names several queues, the NIC must support RSS contexts. The rules stay until --undo or a reboot. To install them only while xwarpd runs,
use a drop-in for xwarpd.service; systemd removes them even if xwarpd is killed:

  [Service]
  ExecStartPre=-+/usr/bin/xwarp doctor --only flow-steering --interface eth0 --queues 4-7 --port 7174 --steer \
    --fix --state /var/lib/xwarp-doctor/steering.json
  ExecStopPost=-+/usr/bin/xwarp doctor --undo --state /var/lib/xwarp-doctor/steering.json

--report writes a JSON file for a bug report: driver, firmware, kernel, queues, rings, offloads, and all results,
including those of --measure. With --peer it adds the throughput of RDMA Write and Read over AF_XDP and over kernel TCP
(40 seconds). The report omits Ethernet addresses, IP addresses and host names unless --names is given.

The exit status is 1 if a check, a fix or an undo fails.`,
		Example: "  sudo xwarp doctor\n  sudo xwarp doctor --interface eth0 --queues 0-3 --port " +
			"7174\n  sudo xwarp doctor --interface eth0 --fix\n  sudo xwarp doctor --undo\n" +
			"  sudo xwarp doctor --interface eth0 --report eth0.json --peer 192.0.2.2",
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.Interface, "interface", "", "network interface to check (default: none)")
	f.StringVar(&queues, "queues", "", "receive queues to serve, such as 0, 0-3 or 0,2 "+
		"(default: all)")
	f.UintSliceVar(&ports, "port", nil, "TCP ports that xwarp listens on")
	f.BoolVar(&o.HugePages, "huge-pages", false, "check for 2 MiB huge pages")
	f.BoolVar(&o.Measure, "measure", false, "send frames for two seconds to find the fastest "+
		"transmit mode (needs --interface)")
	f.StringVar(&o.Steer, "steer", "", "check n-tuple rules that put connections of --port on "+
		"--queues: listen (connections to local ports), dial (to ports of peers) or both")
	f.Lookup("steer").NoOptDefVal = doctor.SteerBoth
	f.StringVar(&o.Config, "config", "", "xwarpd configuration, for its [[interface.ipsec]] "+
		"tables (default: "+config.DefaultPath+", if it exists)")
	f.StringVar(&o.Only, "only", "", "run only the check of this name")
	f.BoolVar(&fix, "fix", false, "fix problems")
	f.BoolVar(&undo, "undo", false, "undo the fixes of --fix")
	f.StringVar(&state, "state", doctor.DefaultState, "file with the settings from before --fix")
	report.addFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("fix", "undo")
	cmd.MarkFlagsMutuallyExclusive("report", "undo")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Queues, err = parseQueues(queues); err != nil {
			return err
		}
		if o.Measure && o.Interface == "" {
			return usagef("--measure needs --interface")
		}
		if err := report.validate(&o); err != nil {
			return err
		}
		for _, p := range ports {
			if p == 0 || p > 65535 {
				return usagef("--port %d: need 1 to 65535", p)
			}
			o.Ports = append(o.Ports, uint16(p))
		}
		if err := checkSteer(&o); err != nil {
			return err
		}
		v := doctorInfo{document: document{1, "doctor"}, OK: true}
		switch {
		case undo:
			v.Undone, err = doctor.Undo(state)
		case fix:
			v.Lines, err = doctor.Fix(o, state)
		default:
			v.Lines, err = doctor.Look(o)
		}
		if err != nil {
			return err
		}
		if !undo && o.Only == "" {
			v.Lines = append(v.Lines, lookRun()...)
		}
		if report.file != "" {
			if err := report.write(cmd, g, o.Interface, v.Lines); err != nil {
				return err
			}
		}
		v.Lines, v.Undone = append([]doctor.Line{}, v.Lines...),
			append([]doctor.Undone{}, v.Undone...) // JSON: [], not null
		return finishDoctor(cmd, v, *asJSON, undo)
	}
	return cmd
}

func checkSteer(o *doctor.Options) error {
	switch o.Steer {
	case "":
		return nil
	case doctor.SteerBoth, doctor.SteerListen, doctor.SteerDial:
	default:
		return usagef("--steer %q: need both, listen or dial", o.Steer)
	}
	if o.Interface == "" || len(o.Queues) == 0 || len(o.Ports) == 0 {
		return usagef("--steer needs --interface, --queues and --port")
	}
	return nil
}

// maxQueues is the limit of --queues: numbers must be below it.
const maxQueues = 4096

// parseQueues parses numbers and ranges. An empty text returns no queues, which means all.
func parseQueues(text string) ([]int, error) {
	list, err := ranges.Expand(text, "queue", maxQueues-1)
	if err != nil {
		return nil, usagef("--queues %q: need a list such as 0, 0-3 or 0,2", text)
	}
	return list, nil
}

func finishDoctor(cmd *cobra.Command, v doctorInfo, asJSON, undo bool) error {
	bad := 0
	for _, l := range v.Lines {
		bad += len(l.Error) // a failed fix counts as a failure
		if l.Status == doctor.Fail {
			bad++
		}
	}
	for _, u := range v.Undone {
		bad += len(u.Error)
	}
	v.OK = bad == 0
	err := printOne(cmd, asJSON, v, doctorText(&v, undo))
	if err == nil && !v.OK {
		err = fmt.Errorf("checks failed: see the lines with fail or error")
	}
	return err
}

func doctorText(v *doctorInfo, undo bool) string {
	var b strings.Builder
	for _, l := range v.Lines {
		word := string(l.Status)
		if l.Fixed {
			word = "fixed"
		}
		plain.Fprintf(&b, "%-6s %-19s %s\n", word, l.Check, l.What)
		if l.Status == doctor.OK {
			continue
		}
		plain.Fprintf(&b, "%27swhy: %s\n", "", l.Why)
		if l.Remedy != "" {
			plain.Fprintf(&b, "%27sdo:  %s\n", "", l.Remedy)
		}
		if l.Error != "" {
			plain.Fprintf(&b, "%27serror: %s\n", "", l.Error)
		}
	}
	for _, u := range v.Undone {
		name := strings.TrimSpace(u.Check + " " + u.Interface)
		if u.Error != "" {
			plain.Fprintf(&b, "error  %s: %s\n", name, u.Error)
		} else {
			plain.Fprintf(&b, "undone %s\n", name)
		}
	}
	if undo && len(v.Undone) == 0 {
		b.WriteString("nothing to undo\n")
	}
	return b.String()
}
