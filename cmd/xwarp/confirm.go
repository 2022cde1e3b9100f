package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
)

// confirmInfo is the output of confirm.
type confirmInfo struct {
	document
	control.ConfirmResult
}

func newConfirm(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "confirm", Short: "Confirm that this host is still reachable",
		Long: `confirm tells xwarpd that the host is still reachable, so that it keeps running. Without a confirmation in time, xwarpd
releases the interfaces and exits, so a locked-out operator regains access. xwarpd expects a confirmation if
daemon.confirm is a time, or if it was started by hand in an SSH session over one of its interfaces.

Only a user with access to the operator socket (root) may confirm.`,
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
		return printOne(cmd, o.json, confirmInfo{document{1, "confirm"}, r},
			confirmText(&r)+"\n")
	}
	return cmd
}

func confirmText(r *control.ConfirmResult) string {
	switch r.State {
	case control.ConfirmDone:
		return fmt.Sprintf("confirmed; xwarpd keeps running (%v were left)",
			seconds(r.Left))
	case control.ConfirmAlready:
		return "already confirmed; xwarpd keeps running"
	}
	return "no confirmation needed; xwarpd keeps running (see daemon.confirm in xwarp config default)"
}
