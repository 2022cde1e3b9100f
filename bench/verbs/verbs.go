// Package verbs measures what a program of perftest gets over the library of xwarp run, beside the daemon's
// client in Go and the embedded engine doing the same, in rounds that take turns.
package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xwarp/bench/topo"
)

// Way is how a program reaches the engine.
type Way string

// The ways.
const (
	Library  Way = "the library of xwarp run" // ib_write_lat and ib_write_bw
	Client   Way = "the daemon's client in Go"
	Embedded Way = "the embedded engine"
)

// Ways are all of them, in the order of the tables.
var Ways = []Way{Library, Client, Embedded}

// Figure is what is compared.
type Figure struct {
	Title string `json:"title" doc:"what was measured"`
	Unit  string `json:"unit" doc:"us or MiB/s"`

	test, flags string // of perftest, and of xwarp bench
	column      int    // of the line that both print
}

// Figures are what Run measures.
var Figures = []Figure{
	{Title: "RDMA Write of 64 octets, half a round trip, median", Unit: "us", test: "write_lat",
		flags: "-s 64 -n 10000", column: 4},
	{Title: "RDMA Write of 1 MiB, 8 under way", Unit: "MiB/s", test: "write_bw",
		flags: "-s 1048576 -n 400 -t 8 -Q 1", column: 3},
}

// Row is what one way got, one figure for each round.
type Row struct {
	Way    Way       `json:"over" doc:"how the programs reach the engine"`
	Values []float64 `json:"values" doc:"figures in the order of rounds"`
}

// Table is a figure of all ways.
type Table struct {
	Figure
	Rows []Row `json:"rows" doc:"one for each way"`
}

// Options say how Run measures.
type Options struct {
	Xwarp, Xwarpd string // paths of the commands; the library lies beside xwarp
	Rounds        int
	Progress      func(f *Figure, w Way, round int)
}

// rig is two pairs of hosts: one with daemons, one for the embedded engine, which needs the interfaces itself.
type rig struct {
	o       Options
	dir     string
	daemons *topo.Net
	bare    *topo.Net
	running []*exec.Cmd
	port    int
}

// Run measures.
func Run(ctx context.Context, o Options) (tables []Table, err error) {
	r := &rig{o: o, port: 18600}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(); err != nil {
		return nil, err
	}
	for _, f := range Figures {
		t := Table{Figure: f}
		for _, w := range Ways {
			t.Rows = append(t.Rows, Row{Way: w})
		}
		for round := range o.Rounds {
			for i := range Ways {
				i = (i + round) % len(Ways) // who goes first takes turns
				if o.Progress != nil {
					o.Progress(&f, Ways[i], round)
				}
				v, err := r.measure(ctx, &f, Ways[i])
				if err != nil {
					return nil, fmt.Errorf("%s over %s: %w", f.test, Ways[i], err)
				}
				t.Rows[i].Values = append(t.Rows[i].Values, v)
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (r *rig) open() (err error) {
	if r.dir, err = os.MkdirTemp("", "xwarp-verbs"); err != nil {
		return err
	}
	for _, n := range []**topo.Net{&r.daemons, &r.bare} {
		if *n, err = topo.New(topo.Options{OffloadsA: topo.NoOffloads,
			OffloadsB: topo.NoOffloads}); err != nil {
			return err
		}
	}
	for _, h := range []*topo.Host{r.daemons.A, r.daemons.B} {
		if err := r.daemon(h); err != nil {
			return err
		}
	}
	return nil
}

// socket is that of the daemon of a host.
func (r *rig) socket(h *topo.Host) string { return filepath.Join(r.dir, h.Addr4.Addr().String()) }

// daemon starts the daemon of a host, and waits for it.
func (r *rig) daemon(h *topo.Host) error {
	file := r.socket(h) + ".toml"
	text := fmt.Sprintf("[daemon]\nsocket = %q\n[[interface]]\nname = %q\ntransport = \"xdp\"\n",
		r.socket(h), h.Link.Name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(r.o.Xwarpd, "--config", file)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := h.Start(cmd); err != nil {
		return err
	}
	r.running = append(r.running, cmd)
	for stop := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(r.socket(h)); err == nil {
			return nil
		} else if time.Now().After(stop) {
			return fmt.Errorf("xwarpd does not start: %w", err)
		}
	}
}

const (
	startLimit   = 30 * time.Second
	measureLimit = 2 * time.Minute // of one measurement
	tries        = 5               // of a client whose server does not listen yet
)

func (r *rig) close() error {
	var errs []error
	for _, c := range r.running {
		errs = append(errs, c.Process.Signal(syscall.SIGTERM))
		c.Wait()
	}
	for _, n := range []*topo.Net{r.daemons, r.bare} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// command is an end of a measurement; to is the server's address, and invalid for the server.
func (r *rig) command(ctx context.Context, f *Figure, w Way, h *topo.Host,
	to netip.Addr) (*exec.Cmd, *bytes.Buffer) {
	line := "bench " + f.test + " --transport daemon --socket " + r.socket(h)
	switch w {
	case Library:
		line = "run --socket " + r.socket(h) + " -- ib_" + f.test + " -R -F"
	case Embedded:
		line = "bench " + f.test + " --transport xdp"
	}
	line += fmt.Sprintf(" %s -p %d", f.flags, r.port)
	if to.IsValid() {
		line += " " + to.String()
	}
	cmd, out := exec.CommandContext(ctx, r.o.Xwarp, strings.Fields(line)...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	return cmd, out
}

// measure runs a server and a client, and returns the client's figure.
func (r *rig) measure(ctx context.Context, f *Figure, w Way) (v float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	net := r.daemons
	if w == Embedded {
		net = r.bare
	}
	r.port += 2 // what is left of a connection disturbs nobody
	server, said := r.command(ctx, f, w, net.B, netip.Addr{})
	if err := net.B.Start(server); err != nil {
		return 0, err
	}
	defer server.Wait()
	for range tries {
		time.Sleep(time.Second) // for the server to listen, and for the daemons to rest
		client, out := r.command(ctx, f, w, net.A, net.B.Addr4.Addr())
		if err = net.A.Start(client); err == nil {
			err = client.Wait()
		}
		if err == nil {
			return figure(out.String(), f.column)
		}
		err = fmt.Errorf("%w: %s", err, out)
	}
	server.Process.Kill()
	server.Wait()
	return 0, fmt.Errorf("%w; the server: %s", err, said)
}

// aLine is a line of figures, as perftest prints it under its heading.
var aLine = regexp.MustCompile(`(?m)^ *\d+ +\d+ +\d+\.\d+ .*$`)

// figure takes a column of the table that a test printed.
func figure(out string, column int) (float64, error) {
	fields := strings.Fields(aLine.FindString(out))
	if len(fields) <= column {
		return 0, fmt.Errorf("no figures in %q", out)
	}
	return strconv.ParseFloat(fields[column], 64)
}

// Ratio is how the rounds of the library compare with those of another way: the median, the smallest and the largest.
func (t *Table) Ratio(w Way) (median, low, high float64) {
	var ratios []float64
	ours := t.Rows[slices.Index(Ways, Library)].Values
	for i, v := range t.Rows[slices.Index(Ways, w)].Values {
		ratios = append(ratios, ours[i]/v)
	}
	return spread(ratios)
}

func spread(v []float64) (median, low, high float64) {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2, v[0], v[n-1]
}

// WriteMarkdown writes the tables.
func WriteMarkdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s\n\n| over | %s | spread | the library against it | spread |\n"+
			"|---|---:|---|---:|---|\n", t.Title, t.Unit)
		for _, row := range t.Rows {
			m, low, high := spread(row.Values)
			ratio, least, most := t.Ratio(row.Way)
			fmt.Fprintf(&b, "| %s | %.2f | %.2f – %.2f | %.3f | %.3f – %.3f |\n", row.Way, m, low,
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
