package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"xwarp/engine/control"
	"xwarp/engine/metrics"
)

// statusInfo is what status prints.
type statusInfo struct {
	Schema  int            `json:"schema" doc:"version of this layout, 1"`
	Command string         `json:"command" doc:"\"status\""`
	Version string         `json:"version" doc:"of the daemon"`
	Pid     int            `json:"pid" doc:"of the daemon"`
	Uptime  float64        `json:"uptime_seconds" doc:"how long the daemon runs"`
	Devices []deviceStatus `json:"devices" doc:"the daemon's devices"`
	Exports []exportStatus `json:"exports" doc:"memory that peers reach without a program"`
	Objects objectCounts   `json:"objects" doc:"what programs have, as far as this user may see it"`
}

type deviceStatus struct {
	Device    string      `json:"device" doc:"its name"`
	Transport string      `json:"transport" doc:"\"xdp\" or \"kernel\""`
	XDPMode   string      `json:"xdp_mode,omitempty" doc:"\"native\" or \"generic\""`
	Copy      string      `json:"copy,omitempty" doc:"\"copy\" or \"zero-copy\""`
	MTU       int         `json:"mtu,omitempty" doc:"largest IP packet in octets"`
	Queues    int         `json:"queues,omitempty" doc:"queues served"`
	RxFrames  uint64      `json:"rx_frames" doc:"frames received"`
	TxFrames  uint64      `json:"tx_frames" doc:"frames sent"`
	Dropped   []dropCount `json:"dropped,omitempty" doc:"frames dropped, by cause"`
	Unowned   uint64      `json:"unowned,omitempty" doc:"frames of our ports on queues that are not served"`
	Fallback  string      `json:"fallback,omitempty" doc:"why native mode or zero-copy could not be had"`
	Error     string      `json:"error,omitempty" doc:"why there are no counters"`
}

type dropCount struct {
	Cause  string `json:"cause" doc:"as in xwarp_dropped_frames_total"`
	Frames uint64 `json:"frames" doc:"since the daemon started"`
}

type exportStatus struct {
	Export      string `json:"export" doc:"its name"`
	Device      string `json:"device" doc:"where it is"`
	Listen      string `json:"listen" doc:"address"`
	Serve       string `json:"serve" doc:"\"memory\" or \"transfer\""`
	Memory      string `json:"memory" doc:"\"anonymous\", \"hugepages\" or \"file\""`
	Size        int64  `json:"size" doc:"octets"`
	Access      string `json:"access" doc:"rights of peers"`
	Connections int    `json:"connections" doc:"now"`
	Rejected    uint64 `json:"rejected" doc:"connections"`
}

type objectCounts struct {
	Sessions  int `json:"session" doc:"programs connected to the daemon"`
	PDs       int `json:"pd" doc:"protection domains"`
	MRs       int `json:"mr" doc:"memory regions"`
	CQs       int `json:"cq" doc:"completion queues"`
	QPs       int `json:"qp" doc:"queue pairs"`
	Listeners int `json:"listener" doc:"listeners of programs"`
}

func countObjects(s *control.Snapshot) objectCounts {
	return objectCounts{len(s.Sessions), len(s.PDs), len(s.MRs), len(s.CQs), len(s.QPs), len(s.Listeners)}
}

func newStatus(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show what the daemon is and does",
		Long:    "status shows the daemon's devices with what they dropped, its exports, and how much programs have.",
		Example: "  xwarp status\n  xwarp status --watch\n  xwarp status -j",
		Args:    noArgs,
	}
	o.register(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.show(cmd, makeStatus, writeStatus) }
	return cmd
}

func makeStatus(s *control.Snapshot) any {
	v := statusInfo{
		Schema: 1, Command: "status", Version: s.Version, Pid: s.Pid, Uptime: s.Uptime,
		Devices: []deviceStatus{}, Exports: []exportStatus{}, Objects: countObjects(s),
	}
	for i := range s.Devices {
		v.Devices = append(v.Devices, makeDeviceStatus(&s.Devices[i]))
	}
	for _, e := range s.Exports {
		v.Exports = append(v.Exports, exportStatus{e.Name, e.Device, e.Listen.String(), e.Serve, e.Memory, e.Size, e.Access, e.Connections, e.Rejected})
	}
	return v
}

func makeDeviceStatus(d *control.DeviceState) deviceStatus {
	v := deviceStatus{
		Device: d.Name, Transport: d.Transport, XDPMode: d.XDPMode, Copy: d.Copy, MTU: d.MTU, Queues: d.Queues,
		Unowned: d.Steering["pass_no_socket"], Fallback: d.Fallback, Error: d.Error,
	}
	for i := range d.Workers {
		v.RxFrames += d.Workers[i].Stack["rx_frames"]
		v.TxFrames += d.Workers[i].Stack["tx_frames"]
	}
	drops := deviceDrops(d)
	for _, cause := range slices.Sorted(maps.Keys(drops)) {
		if n := drops[cause]; n > 0 {
			v.Dropped = append(v.Dropped, dropCount{cause, n})
		}
	}
	return v
}

// deviceDrops sums the frames that the workers of a device dropped.
func deviceDrops(d *control.DeviceState) map[string]uint64 {
	sum := map[string]uint64{}
	for i := range d.Workers {
		for cause, n := range metrics.Drops(d.Workers[i].Stack, d.Workers[i].Ring) {
			sum[cause] += n
		}
	}
	return sum
}

func writeStatus(w io.Writer, v any) error {
	s := v.(statusInfo)
	fmt.Fprintf(w, "xwarpd %s, process %d, up %v\n", s.Version, s.Pid, time.Duration(s.Uptime*float64(time.Second)).Round(time.Second))
	for _, d := range s.Devices {
		fmt.Fprintf(w, "device %s: %s", d.Device, d.Transport)
		if d.XDPMode != "" {
			fmt.Fprintf(w, ", %s, %s, MTU %d, %s", d.XDPMode, d.Copy, d.MTU, count(d.Queues, "queue"))
			fmt.Fprintf(w, ", %d frames in, %d out", d.RxFrames, d.TxFrames)
		}
		fmt.Fprintln(w)
		for _, c := range d.Dropped {
			fmt.Fprintf(w, "  dropped %d: %s\n", c.Frames, c.Cause)
		}
		for _, m := range []struct{ what, text string }{{"fallback", d.Fallback}, {"error", d.Error}} {
			if m.text != "" {
				fmt.Fprintf(w, "  %s: %s\n", m.what, m.text)
			}
		}
		if d.Unowned > 0 {
			fmt.Fprintf(w, "  %d frames came on queues that are not served: xwarp doctor --interface %s\n", d.Unowned, d.Device)
		}
	}
	for _, e := range s.Exports {
		fmt.Fprintf(w, "export %s: %s on %s, %s, %d octets, %s, %s\n", e.Export, e.Serve, e.Listen, e.Memory, e.Size, e.Access, count(e.Connections, "connection"))
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s, %s, %s, %s\n", count(s.Objects.Sessions, "program"), count(s.Objects.QPs, "queue pair"),
		count(s.Objects.MRs, "memory region"), count(s.Objects.CQs, "completion queue"), count(s.Objects.PDs, "protection domain"), count(s.Objects.Listeners, "listener"))
	return err
}
