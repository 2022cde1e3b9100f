package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/bench/topo"
	"xwarp/engine/plain"
)

// newVerbs measures the library of xwarp run.
func newVerbs() *cobra.Command {
	var o LibraryOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "verbs",
		Short: "Measure perftest over xwarp run against the daemon's Go client and the engine",
		Long: `verbs runs ib_write_lat and ib_write_bw over the library of xwarp run, and the same tests of this
command over the daemon's client in Go and over the embedded engine, in rounds that take turns, between
two network namespaces of this machine with a daemon in each. It needs root, perftest, and xwarpd and
the library beside this executable.`,
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 5, "of each figure")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "JSON, with the figures of each round")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Xwarp, err = os.Executable(); err != nil {
			return err
		}
		if o.Xwarpd, err = daemonPath(); err != nil {
			return err
		}
		end, err := process.Prioritise()
		if err != nil {
			return err
		}
		defer end()
		line := newStatus(cmd.ErrOrStderr())
		o.Progress = func(f *LibraryFigure, w AccessPath, round int) {
			line.show("%s over %s, round %d of %d", f.Title, w, round+1, o.Rounds)
		}
		tables, err := measureLibrary(cmd.Context(), o)
		line.clear()
		if err != nil {
			return err
		}
		if asJSON {
			return plain.WriteJSON(cmd.OutOrStdout(), tables)
		}
		return writeLibraryTables(cmd.OutOrStdout(), tables)
	}
	return c
}

// AccessPath is how a program reaches the engine.
type AccessPath string

// The access paths.
const (
	viaLibrary  AccessPath = "the library of xwarp run" // ib_write_lat and ib_write_bw
	viaGoClient AccessPath = "the daemon's client in Go"
	viaEngine   AccessPath = "the embedded engine"
)

// accessPaths are all of them, in the order of the tables.
var accessPaths = []AccessPath{viaLibrary, viaGoClient, viaEngine}

// LibraryFigure is one figure that is compared.
type LibraryFigure struct {
	Title string `json:"title" doc:"what was measured"`
	Unit  string `json:"unit" doc:"us or MiB/s"`

	test, flags string // of perftest, and of xwarp bench
	column      int    // of the line that both print
}

// libraryFigures are the figures that Run measures.
var libraryFigures = []LibraryFigure{
	{Title: "RDMA Write of 64 bytes, half a round trip, median", Unit: "us", test: "write_lat",
		flags: "-s 64 -n 10000", column: 4},
	{Title: "RDMA Write of 1 MiB, 8 under way", Unit: "MiB/s", test: "write_bw",
		flags: "-s 1048576 -n 400 -t 8 -Q 1", column: 3},
}

// LibraryRow has the figures of one access path, one for each round.
type LibraryRow struct {
	Path   AccessPath `json:"over" doc:"how the programs reach the engine"`
	Values []float64  `json:"values" doc:"figures in the order of rounds"`
}

// LibraryTable is one figure with a row for each access path.
type LibraryTable struct {
	LibraryFigure
	Rows []LibraryRow `json:"rows" doc:"one for each access path"`
}

// LibraryOptions say how Run measures.
type LibraryOptions struct {
	Xwarp, Xwarpd string // paths of the commands; the library lies beside xwarp
	Rounds        int
	Progress      func(f *LibraryFigure, w AccessPath, round int)
}

// libraryRig is two pairs of hosts: one with daemons, one for the embedded engine, which needs the interfaces itself.
type libraryRig struct {
	o       LibraryOptions
	daemons *topo.Net
	bare    *topo.Net
	running map[*topo.Host]*process.Daemon // by their hosts
	port    int
}

// measureLibrary measures.
func measureLibrary(ctx context.Context, o LibraryOptions) (tables []LibraryTable, err error) {
	r := &libraryRig{o: o, port: 18600, running: map[*topo.Host]*process.Daemon{}}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.startHosts(); err != nil {
		return nil, err
	}
	for _, f := range libraryFigures {
		t := LibraryTable{LibraryFigure: f}
		for _, w := range accessPaths {
			t.Rows = append(t.Rows, LibraryRow{Path: w})
		}
		for round := range o.Rounds {
			for i := range accessPaths {
				i = (i + round) % len(accessPaths) // who goes first takes turns
				if o.Progress != nil {
					o.Progress(&f, accessPaths[i], round)
				}
				v, err := r.measureFigure(ctx, &f, accessPaths[i])
				if err != nil {
					return nil, fmt.Errorf("%s over %s: %w", f.test, accessPaths[i], err)
				}
				t.Rows[i].Values = append(t.Rows[i].Values, v)
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (r *libraryRig) startHosts() (err error) {
	for _, n := range []**topo.Net{&r.daemons, &r.bare} {
		if *n, err = topo.New(topo.Options{OffloadsA: topo.NoOffloads,
			OffloadsB: topo.NoOffloads}); err != nil {
			return err
		}
	}
	for _, h := range []*topo.Host{r.daemons.A, r.daemons.B} {
		d, err := process.StartDaemon(h, r.o.Xwarpd)
		if err != nil {
			return err
		}
		r.running[h] = d
	}
	return nil
}

const (
	figureTimeout = 2 * time.Minute // of one measurement
	clientRetries = 5               // of a client whose server does not listen yet
)

func (r *libraryRig) close() error {
	var errs []error
	for _, d := range r.running {
		errs = append(errs, d.Close())
	}
	for _, n := range []*topo.Net{r.daemons, r.bare} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// command is an end of a measurement; to is the server's address, and invalid for the server.
func (r *libraryRig) command(ctx context.Context, f *LibraryFigure, w AccessPath, h *topo.Host,
	to netip.Addr) (*exec.Cmd, *bytes.Buffer) {
	line := "bench " + f.test + " --transport xdp"
	if d := r.running[h]; w == viaLibrary {
		line = "run --socket " + d.Socket + " -- ib_" + f.test + " -R -F"
	} else if w == viaGoClient {
		line = "bench " + f.test + " --transport daemon --socket " + d.Socket
	}
	line += fmt.Sprintf(" %s -p %d", f.flags, r.port)
	if to.IsValid() {
		line += " " + to.String()
	}
	cmd, out := exec.CommandContext(ctx, r.o.Xwarp, strings.Fields(line)...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	return cmd, out
}

// measureFigure runs a server and a client, and returns the client's figure.
func (r *libraryRig) measureFigure(ctx context.Context, f *LibraryFigure, w AccessPath) (v float64,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, figureTimeout)
	defer cancel()
	net := r.daemons
	if w == viaEngine {
		net = r.bare
	}
	r.port += 2 // a new port: connections of the run before may still be closing
	server, output := r.command(ctx, f, w, net.B, netip.Addr{})
	if err := net.B.Start(server); err != nil {
		return 0, err
	}
	defer server.Wait()
	for range clientRetries {
		time.Sleep(time.Second) // for the server to listen, and for the daemons to rest
		client, out := r.command(ctx, f, w, net.A, net.B.Addr4.Addr())
		if err = net.A.Start(client); err == nil {
			err = client.Wait()
		}
		if err == nil {
			return parseFigure(out.String(), f.column)
		}
		err = fmt.Errorf("%w: %s", err, out)
	}
	server.Process.Kill()
	server.Wait()
	return 0, fmt.Errorf("%w; the server: %s", err, output)
}

// figuresLine is a line of figures, as perftest prints it under its heading.
var figuresLine = regexp.MustCompile(`(?m)^ *\d+ +\d+ +\d+\.\d+ .*$`)

// parseFigure takes a column of the table that a test printed.
func parseFigure(out string, column int) (float64, error) {
	fields := strings.Fields(figuresLine.FindString(out))
	if len(fields) <= column {
		return 0, fmt.Errorf("no figures in %q", out)
	}
	return strconv.ParseFloat(fields[column], 64)
}

// Ratio is how the rounds of the library compare with those of another access path: median, smallest and largest.
func (t *LibraryTable) Ratio(w AccessPath) (median, low, high float64) {
	var ratios []float64
	ours := t.Rows[slices.Index(accessPaths, viaLibrary)].Values
	for i, v := range t.Rows[slices.Index(accessPaths, w)].Values {
		ratios = append(ratios, ours[i]/v)
	}
	return endpoint.Spread(ratios)
}

// writeLibraryTables writes the tables.
func writeLibraryTables(w io.Writer, tables []LibraryTable) error {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s\n\n| over | %s | spread | the library against it | spread |\n"+
			"|---|---:|---|---:|---|\n", t.Title, t.Unit)
		for _, row := range t.Rows {
			m, low, high := endpoint.Spread(row.Values)
			ratio, least, most := t.Ratio(row.Path)
			fmt.Fprintf(&b, "| %s | %.2f | %.2f – %.2f | %.3f | %.3f – %.3f |\n", row.Path, m, low,
				high, ratio, least, most)
		}
		b.WriteByte('\n')
	}
	b.WriteString(`Rounds take turns; the ratio is taken within a round. No program has a processor to itself: two programs and two daemons
share those of the machine. ib_write_lat and the engine's consumer spin; a program of the client in Go that waits for a
Write sleeps a microsecond between two looks at its memory. ib_write_bw writes from one buffer, the others from eight.

`)
	_, err := io.WriteString(w, b.String())
	return err
}
