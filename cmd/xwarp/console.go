package main

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"xwarp/cmd/program"
	"xwarp/engine/plain"
	"xwarp/engine/verbs"
)

// document begins every object that a command prints as JSON.
type document struct {
	Schema  int    `json:"schema" doc:"version of this layout"`
	Command string `json:"command" doc:"what printed it"`
}

// failure is the object of a command that failed before it printed an object of its own.
type failure struct {
	document
	OK    bool   `json:"ok" doc:"false"`
	Error string `json:"error" doc:"why the command failed"`
}

// onTransport is a part of the JSON of commands that connect. It names the transport.
type onTransport struct {
	Transport string `json:"transport" doc:"\"xdp\" or \"kernel\""`
	Daemon    bool   `json:"daemon,omitempty" doc:"the device is xwarpd's"`
	Interface string `json:"interface,omitempty" doc:"xdp: the interface"`
	XDPMode   string `json:"xdp_mode,omitempty" doc:"xdp: \"native\" or \"generic\""`
}

func transportOf(d verbs.Device) onTransport {
	t := d.Transport()
	return onTransport{t.Name, t.Daemon, t.Interface, t.XDPMode}
}

// jsonFlag is --json of a command that prints one object.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("json", "j", false, "print one JSON object")
}

// printOne prints a command's one object, as JSON or as text.
func printOne(cmd *cobra.Command, asJSON bool, v any, text string) error {
	if asJSON {
		return printJSON(cmd, v)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// say writes a line that begins with the command to stderr.
func say(cmd *cobra.Command, format string, args ...any) {
	plain.Fprintf(cmd.ErrOrStderr(), "%s: "+format+"\n",
		append([]any{cmd.CommandPath()}, args...)...)
}

// printJSON writes one object, indented, to the command's stdout.
func printJSON(cmd *cobra.Command, v any) error {
	return plain.WriteJSON(cmd.OutOrStdout(), v)
}

// closing closes c at the end of a function whose error is *err, and adds the error of Close to it.
func closing(err *error, c io.Closer) { *err = errors.Join(*err, c.Close()) }

// lineJSON writes one object on a line of its own.
func lineJSON(w io.Writer, v any) error { return json.NewEncoder(plain.JSON(w)).Encode(v) }

// bar is a progress bar on a terminal. Anywhere else it prints a line each time that every has passed; with 0, none.
type bar struct {
	w     io.Writer
	on    bool
	every time.Duration
	last  time.Time
	label string
	pb    *progressbar.ProgressBar
}

func newBar(w io.Writer) *bar { return &bar{w: w, on: program.IsTerminal(w), last: time.Now()} }

// show prints that done of total bytes have moved; a total below 0 is unknown. Another label begins a new bar.
func (b *bar) show(label string, done, total int64) {
	if !b.on {
		if b.every > 0 && time.Since(b.last) >= b.every {
			b.last = time.Now()
			plain.Fprintf(b.w, "%s: %s of %s\n", label, plain.Size(uint64(done)),
				plain.Size(uint64(max(total, 0))))
		}
		return
	}
	if b.pb == nil || b.label != label {
		b.clear()
		b.label = label
		b.pb = progressbar.NewOptions64(total,
			progressbar.OptionSetDescription(label),
			progressbar.OptionSetWriter(b.w),
			progressbar.OptionShowBytes(true),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	b.pb.Set64(done)
}

// clear removes the bar.
func (b *bar) clear() {
	if b.pb != nil {
		b.pb.Clear()
		b.pb = nil
	}
}
