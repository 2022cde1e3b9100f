package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/program"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/host/hostfile"
	"xwarp/engine/plain"
)

// captureInfo is the output of capture when it ends.
type captureInfo struct {
	document
	Device string `json:"device" doc:"captured device"`
	File   string `json:"file" doc:"pcapng file"`
	Bytes  int64  `json:"bytes" doc:"size of the file"`
	control.CaptureResult
}

type captureFlags struct {
	operatorFlags
	file, device, qp, remote string
	port                     uint16
	count                    uint64
	snap                     int
	duration                 time.Duration
	decrypt                  bool
}

func newCapture(*global) *cobra.Command {
	var o captureFlags
	cmd := &cobra.Command{
		Use: "capture -w FILE", Short: "Capture the frames of a device to a pcapng file",
		Long: `capture writes the frames that a device of xwarpd receives and sends to a pcapng file, until Ctrl-C. tcpdump cannot see
these frames. The file begins with the start-up frames of connections that already exist, so that Wireshark can decode
them. If writing is too slow, frames are dropped from the file and counted; traffic is not slowed down.

Wireshark and tshark decode hardly any FPDU of a connection with MPA markers: tshark 4.0 showed 166 of 8897 data frames
of xwarp demo as DDP, and 8826 of 8828 without markers. To decode a capture, turn markers off first (mpa.markers = false,
or --markers=false).`,
		Example: "  xwarp capture -w all.pcapng\n  xwarp capture -w - --qp 4 | wireshark -k -i -\n" +
			"  xwarp capture -w peer.pcapng --remote 192.0.2.2 --port 7174 -c 1000 -s 128 " +
			"--duration 10s",
		Args: noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	f := cmd.Flags()
	f.StringVarP(&o.file, "write", "w", "", "output file, - for stdout")
	f.StringVar(&o.device, "device", "", "device to capture (default: that of --qp, or the first)")
	f.StringVar(&o.qp, "qp", "", "only the connection of this queue pair: QPN or SESSION/QPN "+
		"(see: xwarp resource show qp)")
	f.StringVar(&o.remote, "remote", "", "only peers with this address or prefix")
	f.Uint16Var(&o.port, "port", 0, "only connections with this port at either end")
	f.Uint64VarP(&o.count, "count", "c", 0, "stop after this number of frames (default: no limit)")
	f.BoolVar(&o.decrypt, "decrypt", false, "also write the plaintext of IPsec frames, on pcapng "+
		"interfaces named *decrypted (operator only)")
	f.IntVarP(&o.snap, "snaplen", "s", 0, "bytes of each frame to keep (default: all)")
	f.DurationVar(&o.duration, "duration", 0, "stop after this time (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.runCapture(cmd) }
	return cmd
}

// args checks the flags and returns the request for the daemon. startCapture adds the flow of --qp.
func (o *captureFlags) args(cmd *cobra.Command) (a control.CaptureArgs, err error) {
	switch {
	case o.file == "":
		return a, usagef("missing output file: -w FILE, or -w - for stdout")
	case o.file == "-" && o.json:
		return a, usagef("--json and -w - both write to stdout: use -w FILE")
	case o.file == "-" && program.IsTerminal(cmd.OutOrStdout()):
		return a, usagef("stdout is a terminal: redirect it, or use -w FILE")
	case o.snap < 0 || o.duration < 0:
		return a, usagef("--snaplen and --duration must not be negative")
	}
	a = control.CaptureArgs{Port: o.port, Frames: o.count, SnapLen: o.snap,
		Decrypted: o.decrypt}
	if o.remote == "" {
		return a, nil
	}
	if p, err := netip.ParsePrefix(o.remote); err == nil {
		a.Remote = p
		return a, nil
	}
	addr, err := netip.ParseAddr(o.remote)
	if err != nil {
		return a, usagef("--remote %q: need an address or a prefix such as 192.0.2.0/24",
			o.remote)
	}
	a.Remote = netip.PrefixFrom(addr, addr.BitLen())
	return a, nil
}

// find returns the queue pair of --qp. It fails unless exactly one queue pair matches, and that is connected.
func (o *captureFlags) find(s *control.Snapshot) (*control.QPState, error) {
	session, number, ok := strings.Cut(o.qp, "/")
	if !ok {
		session, number = "", o.qp
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return nil, usagef("--qp %q: need QPN or SESSION/QPN", o.qp)
	}
	var found *control.QPState
	var names []string
	for i := range s.QPs {
		q := &s.QPs[i]
		if uint64(q.Handle) == n && q.Export == "" &&
			(session == "" || strconv.FormatUint(q.Session, 10) == session) {
			found = q
			names = append(names, fmt.Sprintf("%d/%d", q.Session, q.Handle))
		}
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("no queue pair %s (see: xwarp resource show qp)", o.qp)
	case len(names) > 1:
		return nil, usagef("--qp %s is ambiguous: %s", o.qp, strings.Join(names, ", "))
	case !found.Remote.IsValid():
		return nil, fmt.Errorf("queue pair %s is not connected", o.qp)
	}
	return found, nil
}

// startCapture connects to the daemon, selects the device and starts the capture.
func (o *captureFlags) startCapture(cmd *cobra.Command, a control.CaptureArgs) (d *client.Device,
	c *client.Capture, err error) {
	err = o.each(cmd.Context(), cmd, func(s *control.Snapshot) error {
		if o.qp != "" {
			q, err := o.find(s)
			if err != nil {
				return err
			}
			o.device = q.Device
			a.Flows = []control.CaptureFlow{{Local: q.Local, Remote: q.Remote}}
		}
		if o.device == "" && len(s.Devices) > 0 {
			o.device = s.Devices[0].Name
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if d, err = client.OpenConfig(client.Config{Path: o.socket, Device: o.device,
		Program: cmd.CommandPath(), Operator: true}); err != nil {
		return nil, nil, err
	}
	if c, err = d.Capture(cmd.Context(), a); err != nil {
		d.Close()
		return nil, nil, fmt.Errorf("capture on %s: %w", o.device, err)
	}
	return d, c, nil
}

func (o *captureFlags) runCapture(cmd *cobra.Command) (err error) {
	a, err := o.args(cmd)
	if err != nil {
		return err
	}
	d, c, err := o.startCapture(cmd, a)
	if err != nil {
		return err
	}
	defer d.Close()
	defer c.Close()
	out := cmd.OutOrStdout()
	if o.file != "-" {
		f, err := hostfile.Create(o.file)
		if err != nil {
			return err
		}
		defer closing(&err, f)
		out = f
	}
	plain.Fprintf(cmd.ErrOrStderr(), "capturing on %s\n", o.device)
	n, result, err := o.copy(cmd.Context(), out, c)
	v := captureInfo{document{1, "capture"}, o.device, o.file, n, result}
	if err == nil && result.Error != "" {
		err = fmt.Errorf("capture is incomplete: %s", result.Error)
	}
	if o.json {
		return errors.Join(printJSON(cmd, v), err)
	}
	plain.Fprintf(cmd.ErrOrStderr(), "%s, %d of them from the start of older connections; "+
		"%d dropped\n", plain.Count(v.Frames, "frame"), v.Start, v.Dropped)
	return err
}

// endWait is the maximum time to wait for the last frames from the daemon after a capture was ended.
const endWait = 30 * time.Second

// copy writes the capture to out until the capture, ctx or --duration ends.
func (o *captureFlags) copy(ctx context.Context, out io.Writer, c *client.Capture) (n int64,
	r control.CaptureResult, err error) {
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	copied := make(chan error, 1)
	go func() {
		var e error
		n, e = io.Copy(out, c)
		if e != nil {
			c.Close() // stop the daemon's side
		}
		copied <- e
	}()
	select {
	case err = <-copied:
		copied <- nil
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	r, e := c.End(wait)
	err = errors.Join(err, e, <-copied)
	return n, r, err
}
