package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what version prints; the doc tags document its JSON keys.
type versionInfo struct {
	Schema   int    `json:"schema" doc:"version of this layout, 1"`
	Command  string `json:"command" doc:"\"version\""`
	Version  string `json:"version" doc:"of the module, \"(devel)\" when built from a work tree"`
	Revision string `json:"revision,omitempty" doc:"of the repository"`
	Modified bool   `json:"modified" doc:"the work tree had changes that were not committed"`
	Go       string `json:"go" doc:"toolchain"`
	Platform string `json:"platform" doc:"operating system and processor"`
}

func buildVersion() versionInfo {
	v := versionInfo{
		Schema: 1, Command: "version", Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = b.Main.Version
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func newVersion(*global) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  xwarp version\n  xwarp version --json",
		Args:    noArgs,
	}
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		if asJSON {
			return printJSON(cmd, v)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "xwarp %s, %s, %s\n", v.Version, v.Go, v.Platform)
		return err
	}
	return cmd
}
