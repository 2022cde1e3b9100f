package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/preflight"
	"xwarp/engine/plain"
)

// configInfo is the output of config show. The doc tags document its JSON keys.
type configInfo struct {
	document
	Path string        `json:"path,omitempty" doc:"configuration file; absent if there is none"`
	Keys []configValue `json:"keys" doc:"selected keys, in the order of the default file"`
}

// configText is the output of config default.
type configText struct {
	document
	Text string `json:"text" doc:"default configuration file: TOML with comments"`
}

// configCheck is the output of config check.
type configCheck struct {
	document
	OK         bool     `json:"ok" doc:"no errors"`
	Path       string   `json:"path,omitempty" doc:"configuration file; absent if there is none"`
	Interfaces int      `json:"interfaces" doc:"number of [[interface]] tables"`
	Exports    int      `json:"exports" doc:"number of [[export]] tables"`
	Error      string   `json:"error,omitempty" doc:"errors, one per line"`
	Warnings   []string `json:"warnings" doc:"settings that are less safe than the defaults"`
}

type configValue struct {
	Key    string        `json:"key" doc:"key, such as daemon.socket or interface[0].name"`
	Value  any           `json:"value" doc:"value: string, number, boolean or list, as in TOML"`
	Origin config.Origin `json:"origin" doc:"source of the value: \"default\", the file, $VARIABLE or the flag"`
	Reload bool          `json:"reload" doc:"a reload applies changes of this key"`
}

// configFlags are the flags of the commands that read the configuration as xwarpd does.
type configFlags struct {
	path string
	set  []string
}

func (c *configFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.path, "config", os.Getenv("XWARP_CONFIG"), "configuration `file` ["+
		config.DefaultPath+"]")
	cmd.Flags().StringArrayVar(&c.set, "set", nil,
		"set a `key=value`, as xwarpd --set does; repeatable")
}

func (c *configFlags) load() (*config.Loaded, error) {
	return config.Load(config.Source{Path: c.path, Env: os.Environ(), Set: c.set})
}

func newConfig(*global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print and check the configuration of xwarpd",
		Long: `xwarpd reads its configuration from ` + config.DefaultPath + `. The commented default file documents every key; print it
with "xwarp config default". Flags override the environment, the environment overrides the file, and the file overrides
the defaults.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigDefault(), newConfigCheck(), newConfigShow())
	return cmd
}

func newConfigDefault() *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "default",
		Short:   "Print the commented default configuration file",
		Example: "  xwarp config default > " + config.DefaultPath,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printOne(cmd, *asJSON, configText{document{1, "config default"},
				config.CommentedDefault}, config.CommentedDefault)
		},
	}
	asJSON = jsonFlag(cmd)
	return cmd
}

func newConfigCheck() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration against this host",
		Long: `check parses the configuration as xwarpd does and checks it against this host. Interfaces, their queues and CPUs must
exist; addresses and ports must be free; the daemon's user must have access to exported files and directories. check
changes nothing. Addresses and ports that a running xwarpd holds count as free.

The exit status is 78 if there are errors.`,
		Example: "  sudo xwarp config check new.toml",
		Args:    atMostOneArg,
	}
	f.addFlags(cmd)
	name := cmd.Flags().String("user", preflight.UnitUser, "`user` that xwarpd runs as; "+
		"only root can check the access rights of another user")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			f.path = args[0]
		}
		user, err := preflight.LookupUser(*name)
		if err != nil {
			return usagef("--user %q: %w", *name, err)
		}
		v := configCheck{document: document{1, "config check"}, Warnings: []string{}}
		l, err := f.load()
		if err == nil {
			v.Path, v.Interfaces, v.Exports = l.Path, len(l.Interface), len(l.Export)
			err = l.RequireInterface()
		}
		if err == nil {
			v.Warnings = append(v.Warnings, preflight.Warnings(l)...)
			err = errors.Join(preflight.Check(l, user, runningDaemon(cmd, l))...)
		}
		if v.OK = err == nil; !v.OK {
			v.Error = err.Error()
		}
		if *asJSON {
			if e := printJSON(cmd, v); e != nil {
				return e
			}
		}
		for _, w := range v.Warnings {
			if !*asJSON {
				say(cmd, "warning: %s", w)
			}
		}
		switch {
		case err != nil:
			return configError{err}
		case *asJSON:
			return nil
		}
		_, err = plain.Fprintf(cmd.OutOrStdout(), "ok: %s, %s, %s\n", v.Path,
			plain.Count(v.Interfaces, "interface"), plain.Count(v.Exports, "export"))
		return err
	}
	return cmd
}

// runningDaemon returns the pid and export addresses of the daemon that serves the sockets of a configuration, or the
// zero value if none responds.
func runningDaemon(cmd *cobra.Command, l *config.Loaded) (r preflight.Daemon) {
	for _, socket := range []string{l.Daemon.OperatorSocket(), l.Daemon.Socket} {
		if socket == "" {
			continue
		}
		d, err := client.OpenConfig(client.Config{Path: socket, Program: cmd.CommandPath()})
		if err != nil {
			continue
		}
		defer d.Close()
		s, err := d.Snapshot(cmd.Context())
		if err != nil {
			continue
		}
		r.Pid = s.Pid
		for _, e := range s.Exports {
			if e.Error == "" {
				r.Listen = append(r.Listen, e.Listen)
			}
		}
		return r
	}
	return r
}

func newConfigShow() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:     "show [KEY...]",
		Short:   "Print the effective values",
		Long:    "show prints the value of every key, or only of the given keys and tables.",
		Example: "  xwarp config show --origin\n  xwarp config show limits mpa.markers",
	}
	f.addFlags(cmd)
	origin := cmd.Flags().Bool("origin", false, "also print the source of each value")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := f.load()
		if err != nil {
			return err
		}
		info := configInfo{document: document{1, "config show"}, Path: l.Path}
		var values []config.Value
		for _, v := range l.Values() {
			if isSelected(v.Key, args) {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			return usagef("unknown key %q (see: xwarp config default)", strings.Join(args, " "))
		}
		if *asJSON {
			for _, v := range values {
				var file map[string]any
				if err := toml.Unmarshal([]byte("value = "+v.Value), &file); err != nil {
					return fmt.Errorf("%s: %w", v.Key, err)
				}
				info.Keys = append(info.Keys, configValue{v.Key, file["value"], v.Origin, v.Reload})
			}
			return printJSON(cmd, info)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		for _, v := range values {
			if *origin {
				plain.Fprintf(w, "%s\t%s\t%s\n", v.Key, v.Value, v.Origin)
			} else {
				plain.Fprintf(w, "%s\t%s\n", v.Key, v.Value)
			}
		}
		return w.Flush()
	}
	return cmd
}

// isSelected reports whether args select a key: "interface" selects interface[0].name. No args select all keys.
func isSelected(key string, args []string) bool {
	for _, a := range args {
		if rest, ok := strings.CutPrefix(key, a); ok && (rest == "" || rest[0] == '.' ||
			rest[0] == '[') {
			return true
		}
	}
	return len(args) == 0
}
