package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"xwarp/cmd/program"
	"xwarp/engine/version"
)

// versionInfo is the output of version. The doc tags document its JSON keys.
type versionInfo struct {
	document
	Version  string `json:"version" doc:"version of the package or module; \"(devel)\" if built from a work tree"`
	Revision string `json:"revision,omitempty" doc:"revision of the repository"`
	Modified bool   `json:"modified" doc:"the work tree had uncommitted changes"`
	Go       string `json:"go" doc:"Go version"`
	Platform string `json:"platform" doc:"operating system and architecture"`
}

func buildVersion() versionInfo {
	b := version.Get()
	return versionInfo{
		document: document{1, "version"}, Version: b.Version, Revision: b.Revision,
		Modified: b.Modified,
		Go:       runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

func newVersion(*global) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and build information",
		Example: "  xwarp version\n  xwarp version --json",
		Args:    noArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return printOne(cmd, *asJSON, buildVersion(), program.Version("xwarp"))
	}
	return cmd
}
