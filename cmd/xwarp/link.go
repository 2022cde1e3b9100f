package main

import (
	"cmp"
	"io"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// linkInfo and devInfo are the output of link show and dev show.
type linkInfo struct {
	document
	Links []linkRow `json:"link" doc:"ports of the daemon's devices"`
}

type linkRow struct {
	control.Port
	State    string `json:"state" doc:"ACTIVE, DOWN, or NOP if the interface is not visible here"`
	Physical string `json:"physical_state" doc:"LINK_UP, DISABLED (the interface is down), POLLING (no carrier) or NOP"`
	Netdev   string `json:"netdev" doc:"network interface"`
	NetIndex int    `json:"netdev_ifindex,omitempty" doc:"index of the network interface"`
}

type devInfo struct {
	document
	Devices []devRow `json:"dev" doc:"devices of the daemon"`
}

type devRow struct {
	control.DeviceRef
	NodeType  string `json:"node_type" doc:"rnic: an iWARP device"`
	Firmware  string `json:"fw" doc:"version of the daemon"`
	Transport string `json:"transport" doc:"\"xdp\" or \"kernel\""`
	XDPMode   string `json:"xdp_mode,omitempty" doc:"\"native\" or \"generic\""`
	Copy      string `json:"copy,omitempty" doc:"\"copy\" or \"zero-copy\""`
	MTU       int    `json:"mtu,omitempty" doc:"MTU in bytes"`
	Queues    int    `json:"queues,omitempty" doc:"receive queues served"`
}

func newLink(*global) *cobra.Command {
	return newPlace("link", "Show ports and their network interfaces", "DEV/PORT",
		func(s *control.Snapshot, d *control.DeviceState) linkRow {
			return makeLink(view.PortOf(s, d.Name), d)
		}, func(rows []linkRow) any { return linkInfo{document{1, "link"}, rows} })
}

func newDev(*global) *cobra.Command {
	return newPlace("dev", "Show devices", "DEV",
		func(s *control.Snapshot, d *control.DeviceState) devRow {
			return devRow{view.PortOf(s, d.Name).DeviceRef, "rnic", s.Version, d.DeviceMode.Name,
				d.XDPMode, d.Copy, d.MTU, d.Queues}
		}, func(rows []devRow) any { return devInfo{document{1, "dev"}, rows} })
}

// newPlace returns the command link or dev. row makes the row of a device, and info the object with all rows.
func newPlace[R any](name, short, arg string,
	row func(*control.Snapshot, *control.DeviceState) R, info func([]R) any) *cobra.Command {
	var o operatorFlags
	cmd, show := objectCommand(name, &o)
	cmd.Short, cmd.Long = short, short+", like \"rdma "+name+"\" of iproute2.\n"+
		"DEV is the name of an interface, or xwarpN for device number N."
	cmd.Example = "  xwarp " + name + "\n  xwarp -j " + name + " show"
	show.Use, show.Short, show.Example = "show ["+arg+"]", short, cmd.Example
	show.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		return interfaces(), noFiles
	}
	run := func(cmd *cobra.Command, args []string) error {
		f := filters{device: slices.Concat(args, []string{""})[0]}
		var rows []R
		return printSnapshots(cmd, &o, func(s *control.Snapshot) (any, error) {
			err := f.resolve(s)
			rows = []R{}
			for i := range s.Devices {
				if d := &s.Devices[i]; f.device == "" || f.device == d.Name {
					rows = append(rows, row(s, d))
				}
			}
			return info(rows), err
		}, func(w io.Writer, _ any) error { return writeRows(w, rows) })
	}
	show.Args, show.RunE, cmd.RunE = atMostOneArg, run, defaultShow(run)
	return cmd
}

// makeLink reads the state of the interface in this network namespace. If the interface is not visible here, because
// the daemon runs in another namespace, the state is NOP.
func makeLink(port control.Port, d *control.DeviceState) linkRow {
	r := linkRow{port, "NOP", "NOP", cmp.Or(d.Interface, d.Name), 0}
	i, err := net.InterfaceByName(r.Netdev)
	switch {
	case err != nil:
	case i.Flags&net.FlagUp == 0:
		r.State, r.Physical, r.NetIndex = "DOWN", "DISABLED", i.Index
	case i.Flags&net.FlagRunning == 0:
		r.State, r.Physical, r.NetIndex = "DOWN", "POLLING", i.Index
	default:
		r.State, r.Physical, r.NetIndex = "ACTIVE", "LINK_UP", i.Index
	}
	return r
}
