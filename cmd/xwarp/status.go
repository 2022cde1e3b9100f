package main

import (
	"cmp"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
)

func newStatus(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of xwarpd",
		Long: `status shows the devices of xwarpd with their dropped frames, and its exports. It counts the connected programs and
their queue pairs, completion queues, memory regions and other RDMA objects, which "xwarp resource show" lists.`,
		Example: "  xwarp status\n  xwarp status --watch\n  xwarp status -j",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return printSnapshots(cmd, &o, func(s *control.Snapshot) (*control.Status, error) {
			return &s.Status, nil
		}, writeStatus)
	}
	return cmd
}

func writeStatus(w io.Writer, s *control.Status) error {
	plain.Fprintf(w, "xwarpd %s, pid %d, up %v\n", s.Version, s.Pid,
		seconds(s.Uptime))
	if s.Unconfirmed > 0 {
		plain.Fprintf(w, "  shutting down in %v unless confirmed: xwarp confirm\n",
			seconds(s.Unconfirmed))
	}
	if s.Replaced {
		plain.Fprintf(w, "  another version of xwarpd is installed; to run it: systemctl restart xwarpd\n")
	}
	if len(s.Pending) > 0 {
		plain.Fprintf(w, "  not in effect until xwarpd restarts: %s; to apply: "+
			"systemctl restart xwarpd\n", strings.Join(s.Pending, ", "))
	}
	first := map[netip.Addr]string{} // first device on AF_XDP with an address
	for _, d := range s.Devices {
		plain.Fprintf(w, "device %s: %s", d.Name, d.DeviceMode.Name)
		if d.VLAN != 0 {
			plain.Fprintf(w, ", VLAN %d on %s", d.VLAN, d.Trunk)
		}
		if d.XDPMode != "" {
			plain.Fprintf(w, ", %s, %s, transmit %s, MTU %d, %s", d.XDPMode, d.Copy, d.Transmit,
				d.MTU, plain.Count(d.Queues, "queue"))
			plain.Fprintf(w, ", %s in, %d out", plain.Count(d.RxFrames, "frame"), d.TxFrames)
		}
		if len(d.Addresses) > 0 {
			plain.Fprintf(w, "\n  addresses %s",
				strings.Join(mapSlice(d.Addresses, (*netip.Addr).String), ", "))
		}
		for _, a := range d.Addresses {
			other, shared := first[a]
			switch {
			case d.XDPMode == "": // kernel sockets serve all interfaces
			case shared:
				plain.Fprintf(w, "\n  address %v is also on %s: connections may get no answer; "+
					"see xwarp doctor --interface %s", a, other, cmp.Or(d.Interface, d.Name))
			default:
				first[a] = d.Name
			}
		}
		plain.Fprintf(w, "\n  RDMA: %s in, %s out; %s retransmitted\n", plain.Size(d.In),
			plain.Size(d.Out), plain.Size(d.Retrans))
		if len(d.Members) > 0 {
			plain.Fprintf(w, "  members %s; sends on %s\n", strings.Join(d.Members, ", "),
				cmp.Or(strings.Join(d.Senders, ", "), "none"))
		}
		if d.Link != "" && d.Link != control.LinkUp || !d.Since.IsZero() || d.Reopened > 0 {
			plain.Fprintf(w, "  link %s", d.Link)
			if !d.Since.IsZero() {
				plain.Fprintf(w, " since %s", d.Since.Format(time.RFC3339))
			}
			plain.Fprintf(w, ", reopened %s\n", plain.Count(d.Reopened, "time"))
		}
		writeIPsec(w, d.IPsec)
		for _, a := range d.Missing {
			plain.Fprintf(w, "  address %s removed: its connections and listeners wait for its return\n", a)
		}
		for _, c := range d.Dropped {
			plain.Fprintf(w, "  dropped %d: %s\n", c.Frames, c.Cause)
		}
		if d.Partial > 0 {
			plain.Fprintf(w, "  dropped %d: no TCP checksum (xwarp explain \"dropping segments without "+
				"a TCP checksum\")\n", d.Partial)
		}
		for _, m := range []struct{ what, text string }{{"segments", d.Way},
			{"in libxdp's dispatcher, beside", d.Beside},
			{"fallback", d.Fallback}, {"no zero-copy", d.NoZeroCopy}, {"busy polling", d.BusyPoll},
			{"health", d.Health}, {"port mapper", d.Mapper}, {"error", d.Error}} {
			if m.text != "" {
				plain.Fprintf(w, "  %s: %s\n", m.what, m.text)
			}
		}
		if d.Unowned > 0 {
			plain.Fprintf(w, "  dropped %s on receive queues that are not served %v; "+
				"see xwarp doctor --interface %s\n", plain.Count(d.Unowned, "frame"),
				d.UnservedQueues, d.Name)
		}
	}
	for _, e := range s.Exports {
		plain.Fprintf(w, "export %s: %s on %s, %s, %s, %s\n", e.Name, e.Serve,
			e.Listen, sizeOf(&e), e.Access, plain.Count(e.Connections, "connection"))
		if e.Serve != config.ServeMemory {
			plain.Fprintf(w, "  %s stored: %s, %s fetched: %s, %d failed\n",
				plain.Count(e.Puts, "file"), plain.Size(e.PutBytes), plain.Count(e.Gets, "file"),
				plain.Size(e.GetBytes), e.Failed)
		}
		if e.Error != "" {
			plain.Fprintf(w, "  error: %s\n", e.Error)
		}
	}
	o := &s.Count
	_, err := plain.Fprintf(w, "%s, %s, %s, %s, %s, %s\n", plain.Count(o.Sessions, "program"),
		plain.Count(o.QPs, "queue pair"), plain.Count(o.MRs, "memory region"),
		plain.Count(o.CQs, "completion queue"), plain.Count(o.PDs, "protection domain"),
		plain.Count(o.Listeners, "listener"))
	return err
}

// writeIPsec prints the security associations of a device.
func writeIPsec(w io.Writer, s *control.IPsecState) {
	if s == nil {
		return
	}
	plain.Fprintf(w, "  IPsec: %s inbound, %d outbound, %s; %s in, %s out; %d replayed, %d forged\n",
		plain.Count(s.In, "SA"), s.Out, plain.Count(s.Rekeys, "rekey"), plain.Size(s.BytesIn),
		plain.Size(s.BytesOut), s.Replayed, s.Forged)
	for _, a := range s.Waiting {
		plain.Fprintf(w, "  packets to %s wait for an SA; see swanctl --list-sas and the log of the "+
			"IKE daemon (journalctl -u strongswan)\n", a)
	}
	if s.Error != "" {
		plain.Fprintf(w, "  IPsec, %s: %s\n", s.ErrorAt.Format(time.RFC3339), s.Error)
	}
}

// sizeOf formats the size of an export: of its memory, or the used part of its directory's limit.
func sizeOf(e *control.ExportState) string {
	switch {
	case e.Serve != config.ServeDirectory:
		return e.Memory + ", " + plain.Size(uint64(e.Size))
	case e.Size == 0:
		return plain.Size(uint64(e.Used)) + " used, no limit"
	}
	return plain.Size(uint64(e.Used)) + " used of " + plain.Size(uint64(e.Size))
}
