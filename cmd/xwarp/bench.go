package main

import (
	"github.com/spf13/cobra"

	"xwarp/bench/cli"
)

func newBench(*global) *cobra.Command {
	v := buildVersion()
	name := v.Version
	if v.Revision != "" {
		name += " " + v.Revision
	}
	return cli.New(name)
}

func newBenchEnd(*global) *cobra.Command { return cli.NewEnd() }
