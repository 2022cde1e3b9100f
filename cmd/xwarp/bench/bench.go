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

// New returns the command. version is that of this program. The two ends of a measurement report if their versions
// differ.
func New(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure RDMA performance between two hosts or on this one",
		Long: `bench measures throughput, latency and CPU cost.

The tests named like those of perftest (write_bw, read_lat, ...) run between two hosts: without an address a test is the
server, with one it is the client. They use the common flags, defaults and columns of perftest. To run perftest itself,
see xwarp run.

matrix runs the standard measurements between two network namespaces on this machine, interleaved with kernel TCP and
raw AF_XDP, and writes tables and plots.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newMatrix(version), newLocal(version), newCompare(), newShare())
	for _, t := range tests {
		c.AddCommand(newTest(t, version))
	}
	return c
}

// NewEnd returns the hidden command that runs one end of a measurement. It is a child of the root command.
func NewEnd() *cobra.Command {
	return &cobra.Command{
		Use: process.EndCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return process.Main(cmd.Context()) },
	}
}

// status is a status line on a terminal. It prints nothing elsewhere.
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

// runner returns a Runner, which starts both ends of a measurement on this machine. It gives this process and the ends
// the highest priority. Calling end restores the priority of this process's session, but not of its threads.
func runner(version string) (r process.Runner, end func(), err error) {
	cpus, err := process.Processors()
	if err != nil {
		return r, nil, err
	}
	end, err = process.Prioritise()
	return process.Runner{CPUs: cpus, Env: endpoint.LocalEnv(version)}, end, err
}

// daemonPath returns the path of the xwarpd beside this executable.
func daemonPath() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "xwarpd"), err
}

// withElapsedTime runs f and shows the elapsed time in the status line.
func withElapsedTime(s *status, what string, f func() error) error {
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
