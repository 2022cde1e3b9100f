package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"xwarp/engine/version"
)

// versionInfo is what version prints; the doc tags document its JSON keys.
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

// text is the line for people.
func (v *versionInfo) text() string {
	return fmt.Sprintf("xwarp %s, %s, %s\n", v.Version, v.Go, v.Platform)
}

func newVersion(*global) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  xwarp version\n  xwarp version --json",
		Args:    noArgs,
	}
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		if asJSON {
			return printJSON(cmd, v)
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), v.text())
		return err
	}
	return cmd
}
