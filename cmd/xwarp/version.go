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
	Version  string `json:"version" doc:"of the package or of the module, \"(devel)\" when built from a work tree"`
	Revision string `json:"revision,omitempty" doc:"of the repository"`
	Modified bool   `json:"modified" doc:"the work tree had changes that were not committed"`
	Go       string `json:"go" doc:"toolchain"`
	Platform string `json:"platform" doc:"operating system and processor"`
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
		Short:   "Print what this binary was built from",
		Example: "  xwarp version\n  xwarp version --json",
		Args:    noArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return printOne(cmd, *asJSON, buildVersion(), program.Version("xwarp"))
	}
	return cmd
}
