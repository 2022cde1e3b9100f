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
	OK     bool            `json:"ok" doc:"nothing failed"`
	Lines  []doctor.Line   `json:"lines" doc:"one for each check"`
	Undone []doctor.Undone `json:"undone" doc:"what --undo took back"`
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
		Short: "Look for what stands in the way, put it right, and take that back",
		Long: `doctor looks at the kernel, the rights of this process and a network interface. Each line says whether it is ok, a
warning (works, but slower or not with every peer) or a failure (does not work), what was found, why it matters, and the
command that puts it right. The last lines are about xwarp run: its library, and whether the daemon lets this user in.
Attaching and binding are really tried: on the interface where that disturbs nobody, else on a veth pair made for it.

--fix puts right what it can and remembers what was there; --undo takes that back, the last first. The file of --state
lies in a directory that only root may write to, and is not taken otherwise.

--measure compares the ways of transmit of the interface (xdp, packet-gso, xdp-live) for two seconds. Its frames are as
long as the MTU and go from the interface's Ethernet address to the same, so that the next switch drops them.

--steer has a network card with n-tuple rules (mlx5, ice, i40e, ixgbe, bnxt ...) put the TCP connections of --port on the
queues of --queue, which xwarpd serves (queues in its file), and, by the table of RSS, the host's traffic on the others:
both, listen (the ports are this host's) or dial (they are the peers'). Without --fix it only looks. Several queues need
a card with RSS contexts. xwarp's connections of other ports then come on queues of the host's, and stall. The rules stay
until --undo or until the host starts anew. With a drop-in of xwarpd.service they are there while xwarpd runs, and systemd
takes them back also when xwarpd was killed:

  [Service]
  ExecStartPre=-+/usr/bin/xwarp doctor --only flow-steering --interface eth0 --queue 4-7 --port 7174 --steer \
    --fix --state /var/lib/xwarp-doctor/steering.json
  ExecStopPost=-+/usr/bin/xwarp doctor --undo --state /var/lib/xwarp-doctor/steering.json

--report writes one file for somebody who does not have this device: driver, firmware, kernel, queues, rings, offloads,
all lines, what --measure found, and with --peer the speed of put and get by AF_XDP and by the kernel's TCP, 40 seconds.
It has no Ethernet or IP address and no host name, except with --names. Status 1: something fails.`,
		Example: "  sudo xwarp doctor\n  sudo xwarp doctor --interface eth0 --queue 0-3 --port " +
			"7174\n  sudo xwarp doctor --interface eth0 --fix\n  sudo xwarp doctor --undo\n" +
			"  sudo xwarp doctor --interface eth0 --report eth0.json --peer 192.0.2.2",
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.Interface, "interface", "", "network interface to look at")
	f.StringVar(&queues, "queue", "", "receive queues that shall be served: 0, 0-3 or 0,2; "+
		"empty: all")
	f.UintSliceVar(&ports, "port", nil, "TCP ports on which xwarp shall listen")
	f.BoolVar(&o.HugePages, "huge-pages", false, "frames shall lie in 2 MiB pages")
	f.BoolVar(&o.Measure, "measure", false, "send frames to nobody for two seconds, to find the "+
		"fastest way of transmit (needs --interface)")
	f.StringVar(&o.Steer, "steer", "", "have the card put connections of --port on --queue: both, "+
		"listen or dial")
	f.Lookup("steer").NoOptDefVal = doctor.SteerBoth
	f.StringVar(&o.Config, "config", "", "file of xwarpd, for its [[interface.ipsec]] "+
		"tables; empty: "+config.DefaultPath+", if it is there")
	f.StringVar(&o.Only, "only", "", "the one check to make, by its name")
	f.BoolVar(&fix, "fix", false, "put right what can be")
	f.BoolVar(&undo, "undo", false, "take back what --fix did")
	f.StringVar(&state, "state", doctor.DefaultState, "file of what was there before --fix")
	report.addFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("fix", "undo")
	cmd.MarkFlagsMutuallyExclusive("report", "undo")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Queues, err = parseQueues(queues); err != nil {
			return err
		}
		if o.Measure && o.Interface == "" {
			return usagef("--measure needs --interface: on which one shall it send?")
		}
		if err := report.validate(&o); err != nil {
			return err
		}
		for _, p := range ports {
			if p == 0 || p > 65535 {
				return usagef("--port is %d, but it is in 1 to 65535", p)
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
			append([]doctor.Undone{}, v.Undone...) // no null
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
		return usagef("--steer is %q, but it is both, listen or dial", o.Steer)
	}
	if o.Interface == "" || len(o.Queues) == 0 || len(o.Ports) == 0 {
		return usagef("--steer needs --interface, --queue and --port: connections of which ports " +
			"shall come on which queues?")
	}
	return nil
}

// maxQueues bounds --queue: no device has more.
const maxQueues = 4096

// parseQueues reads numbers and ranges; none for all queues.
func parseQueues(text string) ([]int, error) {
	list, err := ranges.Expand(text, "queue", maxQueues-1)
	if err != nil {
		return nil, usagef("--queue is %q, but it is like 0, 0-3 or 0,2", text)
	}
	return list, nil
}

func finishDoctor(cmd *cobra.Command, v doctorInfo, asJSON, undo bool) error {
	bad := 0
	for _, l := range v.Lines {
		bad += len(l.Error) // an attempt to fix that failed is a failure
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
		err = fmt.Errorf("not everything is well: see the lines with fail or error")
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
