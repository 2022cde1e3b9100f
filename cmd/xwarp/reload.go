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
	OK      bool     `json:"ok" doc:"all of the configuration is in effect, but for the keys in restart"`
	Applied bool     `json:"applied" doc:"false: nothing has changed"`
	Path    string   `json:"path,omitempty" doc:"the file that was read"`
	Restart []string `json:"restart" doc:"keys that changed and take effect after a restart"`
	Errors  []string `json:"errors" doc:"what is wrong, and was left out"`
}

func newReload(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "reload", Short: "Have xwarpd read its configuration again, and report the result",
		Long: `reload has the daemon read its configuration again, as SIGHUP does, and waits for the result. What is right takes
effect: a wrong [[export]] keeps its old settings, and one that cannot be opened is tried again. A file that cannot be
read changes nothing.

The exit status is 1 when something is wrong, and 78 when nothing has changed because of it. systemctl reload xwarpd runs
this command. Only who may open the operator's socket may reload: root.`,
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
			r.Path, list(r.Restart), list(r.Errors)}, reloadText(&r))
		switch {
		case err != nil || len(r.Errors) == 0:
			return err
		case !r.Applied:
			return configError{fmt.Errorf("nothing has changed: %s", strings.Join(r.Errors, "\n"))}
		}
		return fmt.Errorf("what is right is in effect, and this is not: %s",
			strings.Join(r.Errors, "\n"))
	}
	return cmd
}

// list makes an empty list be there in JSON.
func list(s []string) []string { return append([]string{}, s...) }

func reloadText(r *control.ReloadResult) string {
	text := ""
	if len(r.Restart) > 0 {
		text = fmt.Sprintf("these keys take effect after a restart (systemctl restart xwarpd): %s\n",
			strings.Join(r.Restart, ", "))
	}
	if len(r.Errors) == 0 {
		text += fmt.Sprintf("ok: %s is in effect\n", r.Path)
	}
	return text
}
