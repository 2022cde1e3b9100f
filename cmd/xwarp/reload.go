package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
)

// reloadInfo is the output of reload.
type reloadInfo struct {
	document
	OK      bool     `json:"ok" doc:"the whole configuration was applied, except the keys in restart"`
	Applied bool     `json:"applied" doc:"false: nothing was changed"`
	Path    string   `json:"path,omitempty" doc:"configuration file"`
	Restart []string `json:"restart" doc:"changed keys that need a restart"`
	Errors  []string `json:"errors" doc:"errors; these settings were not applied"`
}

func newReload(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "reload", Short: "Reload the configuration of xwarpd",
		Long: `reload tells xwarpd to reload its configuration, as SIGHUP does, waits for the result and prints it. xwarpd applies all
valid changes. An invalid [[export]] keeps its old settings; an [[export]] that cannot be opened is retried. If the file
cannot be read or parsed, nothing changes.

The exit status is 1 if some changes were not applied, and 78 if none were. "systemctl reload xwarpd" runs this command.
Only a user with access to the operator socket (root) may reload.`,
		Example: "  sudo xwarp reload",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := o.openClient(cmd)
		if err != nil {
			return err
		}
		defer d.Close()
		r, err := d.Reload(cmd.Context())
		if err != nil {
			return err
		}
		err = printOne(cmd, o.json, reloadInfo{document{1, "reload"}, len(r.Errors) == 0, r.Applied,
			r.Path, nonNil(r.Restart), nonNil(r.Errors)}, reloadText(&r))
		switch {
		case err != nil || len(r.Errors) == 0:
			return err
		case !r.Applied:
			return configError{fmt.Errorf("configuration not applied: %s",
				strings.Join(r.Errors, "\n"))}
		}
		return fmt.Errorf("applied, except: %s",
			strings.Join(r.Errors, "\n"))
	}
	return cmd
}

// nonNil returns a list that is not nil, so that JSON has [] instead of null.
func nonNil(s []string) []string { return append([]string{}, s...) }

func reloadText(r *control.ReloadResult) string {
	text := ""
	if len(r.Restart) > 0 {
		text = fmt.Sprintf("restart needed (systemctl restart xwarpd) for: %s\n",
			strings.Join(r.Restart, ", "))
	}
	if len(r.Errors) == 0 {
		text += fmt.Sprintf("ok: %s applied\n", r.Path)
	}
	return text
}
