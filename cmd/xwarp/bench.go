package main

import (
	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/bench"
)

func newBench(*global) *cobra.Command {
	v := buildVersion()
	name := v.Version
	if v.Revision != "" {
		name += " " + v.Revision
	}
	return bench.New(name)
}

func newBenchEnd(*global) *cobra.Command { return bench.NewEnd() }
