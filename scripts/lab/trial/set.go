// Package trial runs trials in virtual machines and writes a table of the results: a column for each kind of machine, a
// row for each trial. Each machine has two hosts, which are network namespaces.
package trial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"xwarp/scripts/lab/table"
)

// Set is a command that fills one table: its columns and rows, and how to get their results.
type Set[M machine] struct {
	Name string // name of the command
	// Versions returns the versions of what all machines share, as text. Saved results of other versions are dropped.
	Versions func() (string, error)
	Columns  []Column[M]
	Trials   []Trial[M] // in the order in which they run
	// Preamble returns the text before the table. isPart means that this run was limited to some columns or rows, so
	// that others may be of earlier runs.
	Preamble func(versions string, isPart bool) string

	only, try   regexp.Regexp // the names of columns and of rows to run
	script, out string
}

// machine is implemented by Machine and by structs that embed it.
type machine interface {
	Script(text string) (string, error)
	Running() bool
	Close() error
}

// Column is a kind of machine.
type Column[M machine] struct {
	Name  string // name for -only and in the name of the log
	Title string // head of the column
	// Version returns the version of what only this column uses, for the row "kernel". Nil means that there is none.
	Version func() (string, error)
	// Boot boots a machine that has the programs in the directory dir.
	Boot func(ctx context.Context, dir string, log io.Writer) (M, error)
	// Judge returns the error of a trial. It wraps ErrNotOffered or ErrForeignBug of package table around err if xwarp
	// is not to blame.
	Judge func(row string, err error) error
}

// Trial is one row of the table.
type Trial[M machine] struct {
	What string
	Run  func(m M) (string, error)
}

// versionRow is the name of the first row if the columns have a Version.
const versionRow = "kernel"

// Main is the main function of the command. The first argument is the directory with the programs. Main exits with
// status 1 after an error or if trials failed.
func (s *Set[M]) Main() {
	flag.StringVar(&s.out, "out", "bench/results/"+s.Name+".md", "the table; empty: none")
	flag.TextVar(&s.only, "only", regexp.MustCompile(""), s.Name+" whose name matches")
	flag.TextVar(&s.try, "try", regexp.MustCompile(""), "rows whose name matches")
	flag.StringVar(&s.script, "run", "", "a script to run in each machine instead of all trials, "+
		"to look into something")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := s.run(ctx, flag.Arg(0))
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d failed", failed)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
		os.Exit(1)
	}
}

// run runs the chosen trials on the chosen columns, one machine at a time. It returns the number of failed cells in the
// table, including those of earlier runs.
func (s *Set[M]) run(ctx context.Context, dir string) (failed int, err error) {
	versions, err := s.Versions()
	if err != nil {
		return 0, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, err
	}
	state := filepath.Join(dir, s.Name+".json")
	t, err := table.Load(state, versions)
	if err != nil {
		return 0, err
	}
	var titles, rows []string
	if s.Columns[0].Version != nil {
		rows = append(rows, versionRow)
	}
	for _, tr := range s.Trials {
		rows = append(rows, tr.What)
	}
	for _, c := range s.Columns {
		titles = append(titles, c.Title)
		if !s.only.MatchString(c.Name) {
			continue
		}
		if err := s.fillColumn(ctx, &c, dir, t); err != nil {
			return 0, errors.Join(fmt.Errorf("%s: %w", c.Name, err), t.Save(state))
		}
	}
	if s.script != "" {
		return 0, nil
	}
	if s.out != "" {
		text := s.Preamble(versions, s.only.String()+s.try.String() != "")
		err = os.WriteFile(s.out, []byte(text+t.Markdown(titles, rows)), 0o644)
	}
	return t.Failed(), errors.Join(err, t.Save(state))
}

// fillColumn runs the chosen trials of a column in one machine. If the machine ends during a trial, it boots a new one
// for the next trial.
func (s *Set[M]) fillColumn(ctx context.Context, c *Column[M], dir string, t *table.Table) error {
	if c.Version != nil {
		version, err := c.Version()
		if err != nil {
			return err
		}
		if v := (table.Cell{Text: version}); t.Columns[c.Title][versionRow] != v {
			delete(t.Columns, c.Title) // its results are of another version
			t.Set(c.Title, versionRow, v)
		}
	}
	log, err := os.Create(filepath.Join(dir, s.Name+"-"+c.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var m M
	up := false
	defer func() {
		if up {
			m.Close()
		}
	}()
	for _, tr := range s.Trials {
		if !s.try.MatchString(tr.What) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !up {
			if m, err = c.boot(ctx, dir, log); err != nil {
				return err
			}
			up = true
		}
		if s.script != "" {
			out, err := m.Script(s.script)
			fmt.Print(out)
			return err
		}
		fmt.Fprintf(log, "\n== %s\n", tr.What)
		begin := time.Now()
		text, err := tr.Run(m)
		if err != nil && !m.Running() {
			err = fmt.Errorf("the emulator ended: %w", err)
			m.Close()
			up = false
		}
		cell := table.CellOf(text, c.Judge(tr.What, err))
		t.Set(c.Title, tr.What, cell)
		fmt.Fprintf(log, "-- %s\n", cell.Text)
		fmt.Printf("%s: %s: %s (%.0f s)\n", c.Name, tr.What, cell.Text,
			time.Since(begin).Seconds())
	}
	return nil
}

// boot boots a machine, and retries after errors, because qemu 10 sometimes fails an assertion about its translation
// buffer.
func (c *Column[M]) boot(ctx context.Context, dir string, log io.Writer) (m M, err error) {
	const attempts = 3
	for range attempts {
		begin := time.Now()
		if m, err = c.Boot(ctx, dir, log); err == nil {
			fmt.Printf("%s: up after %.0f s\n", c.Name, time.Since(begin).Seconds())
			return m, nil
		}
		fmt.Fprintf(log, "%v\n", err)
		if ctx.Err() != nil {
			break
		}
	}
	return m, err
}
