// Package bench is the command `xwarp bench`.
package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/cmd/program"
)

// New returns the command. version is compared by the two ends of a measurement.
func New(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure RDMA between two hosts, or everything against everything on this one",
		Long: `bench measures.

The tests named like perftest's (write_bw, read_lat, …) run between two hosts: without an address a test is the server,
with one it is the client. They have the most used of perftest's flags, its defaults and its columns; for perftest
itself see xwarp run.

matrix runs the standard set of measurements on this machine, between two network namespaces, with the kernel's TCP and
raw AF_XDP beside it in the same rounds, and writes tables and plots. layers measures the layers one by one, without any
network.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newMatrix(version), newLocal(version), newCompare(), newLayers(), newShare())
	for _, t := range tests {
		c.AddCommand(newTest(t, version))
	}
	return c
}

// NewEnd returns the hidden command that makes this executable one end of a measurement; it belongs to the root.
func NewEnd() *cobra.Command {
	return &cobra.Command{
		Use: process.Argument, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return process.Main(cmd.Context()) },
	}
}

// status is one line on a terminal that is overwritten; elsewhere nothing is printed.
type status struct {
	w  io.Writer
	on bool
}

func newStatus(w io.Writer) *status { return &status{w, program.IsTerminal(w)} }

func (s *status) show(format string, args ...any) {
	if s.on {
		fmt.Fprintf(s.w, "\r\033[K"+format, args...)
	}
}

func (s *status) clear() { s.show("") }

// runner returns the starter of a measurement's ends on this machine. Until end they run before every other process.
func runner(version string) (r process.Runner, end func(), err error) {
	cpus, err := process.Processors()
	if err != nil {
		return r, nil, err
	}
	end, err = process.Prioritise()
	return process.Runner{CPUs: cpus, Env: endpoint.Platform(version)}, end, err
}

// daemonPath returns the path of the xwarpd beside this executable.
func daemonPath() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "xwarpd"), err
}

// clockwork shows how long f takes while it runs.
func clockwork(s *status, what string, f func() error) error {
	start, done := time.Now(), make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		defer s.clear()
		for tick := time.Tick(time.Second); ; {
			select {
			case <-done:
				return
			case <-tick:
				s.show("%s %.0f s", what, time.Since(start).Seconds())
			}
		}
	})
	defer shown.Wait()
	defer close(done)
	return f()
}
