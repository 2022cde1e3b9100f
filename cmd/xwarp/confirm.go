package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
)

// confirmInfo is the output of confirm.
type confirmInfo struct {
	document
	State string  `json:"state" doc:"\"confirmed\", \"already_confirmed\", or \"not_awaited\" when the daemon stays anyway"`
	Left  float64 `json:"left_seconds" doc:"of the time that there was"`
}

func newConfirm(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "confirm", Short: "Keep a daemon that would undo its start otherwise",
		Long: `confirm tells the daemon that the host can still be reached, so that it stays. A daemon waits for this when
daemon.confirm is a time, and when it was started by hand in an SSH session that passes its interface. Unless the
confirmation comes, it gives the interfaces back and ends. Only who may open the operator's socket may confirm: root.`,
		Example: "  sudo xwarp confirm",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := o.openClient(cmd)
		if err != nil {
			return err
		}
		defer d.Close()
		r, err := d.Confirm(cmd.Context())
		if err != nil {
			return err
		}
		return printOne(cmd, o.json, confirmInfo{document{1, "confirm"}, r.State, r.Left},
			confirmText(&r)+"\n")
	}
	return cmd
}

func confirmText(r *control.ConfirmResult) string {
	switch r.State {
	case control.ConfirmDone:
		return fmt.Sprintf("confirmed: the daemon stays (%v were left)",
			seconds(r.Left))
	case control.ConfirmAlready:
		return "the daemon is confirmed already: it stays"
	}
	return "the daemon does not wait for a confirmation: it stays (see: daemon.confirm in xwarp " +
		"config default)"
}
