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
	version.Build
	Go       string `json:"go" doc:"Go version"`
	Platform string `json:"platform" doc:"operating system and architecture"`
}

func buildVersion() versionInfo {
	return versionInfo{document{1, "version"}, version.Get(), runtime.Version(),
		runtime.GOOS + "/" + runtime.GOARCH}
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
