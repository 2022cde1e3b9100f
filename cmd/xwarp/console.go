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
	Schema  int    `json:"schema" doc:"version of the layout of this object"`
	Command string `json:"command" doc:"command that printed the object"`
}

// failure is the object of a command that failed before it printed its own object.
type failure struct {
	document
	OK    bool   `json:"ok" doc:"always false"`
	Error string `json:"error" doc:"error message"`
}

// onTransport describes the transport in the JSON of commands that connect.
type onTransport struct {
	Transport string `json:"transport" doc:"\"xdp\" or \"kernel\""`
	Daemon    bool   `json:"daemon,omitempty" doc:"the device belongs to xwarpd"`
	Interface string `json:"interface,omitempty" doc:"xdp: network interface"`
	XDPMode   string `json:"xdp_mode,omitempty" doc:"xdp: \"native\" or \"generic\""`
}

func transportOf(d verbs.Device) onTransport {
	t := d.Transport()
	return onTransport{t.Name, t.Daemon, t.Interface, t.XDPMode}
}

// String describes the transport in text, such as "xdp on eth0, by xwarpd".
func (t onTransport) String() string {
	text := t.Transport
	if t.Interface != "" {
		text += " on " + t.Interface
	}
	if t.Daemon {
		text += ", by xwarpd"
	}
	return text
}

// jsonFlag adds --json to a command that prints one object.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("json", "j", false, "print one JSON object")
}

// printOne prints the single object of a command, as JSON or as text.
func printOne(cmd *cobra.Command, asJSON bool, v any, text string) error {
	if asJSON {
		return printJSON(cmd, v)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// say writes a line to stderr, prefixed with the command.
func say(cmd *cobra.Command, format string, args ...any) {
	plain.Fprintf(cmd.ErrOrStderr(), "%s: "+format+"\n",
		append([]any{cmd.CommandPath()}, args...)...)
}

// printJSON writes one object, indented, to the command's stdout.
func printJSON(cmd *cobra.Command, v any) error {
	return plain.WriteJSON(cmd.OutOrStdout(), v)
}

// closing closes c and joins the error to *err. Defer it in a function with the named result err.
func closing(err *error, c io.Closer) { *err = errors.Join(*err, c.Close()) }

// lineJSON writes v as JSON on one line.
func lineJSON(w io.Writer, v any) error { return json.NewEncoder(plain.JSON(w)).Encode(v) }

// bar is a progress bar if w is a terminal. Otherwise it prints a line at most once per interval every, or nothing if
// every is zero.
type bar struct {
	w     io.Writer
	on    bool
	every time.Duration
	last  time.Time
	label string
	pb    *progressbar.ProgressBar
}

func newBar(w io.Writer) *bar { return &bar{w: w, on: program.IsTerminal(w), last: time.Now()} }

// show prints progress: done of total bytes. A negative total means unknown. A new label starts a new bar.
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
