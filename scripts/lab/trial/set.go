// Package trial runs trials in virtual machines, and writes a table of the results: a column for each kind of machine,
// a row for each trial. The machines have two hosts, which are network namespaces.
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

// Set is the columns and rows of one table.
type Set[M machine] struct {
	Name string // of the command
	// Versions returns the version of everything that all machines share. Results of other versions are dropped.
	Versions func() (string, error)
	Columns  []Column[M]
	Trials   []Trial[M] // in the order in which they run
	// Preamble returns the text before the table. isPart means that the table has results of several runs.
	Preamble func(versions string, isPart bool) string

	only, try   regexp.Regexp // columns and rows
	script, out string
}

// machine is a Machine, or a struct that has one.
type machine interface {
	Script(text string) (string, error)
	Running() bool
	Close() error
}

// Column is a kind of machine.
type Column[M machine] struct {
	Name  string // for -only, and of the log
	Title string
	// Version is the version of what only this column has, shown in the row "kernel". Nil means none.
	Version func() (string, error)
	// Boot makes a machine with the programs in a directory.
	Boot func(ctx context.Context, dir string, log io.Writer) (M, error)
	// Judge returns the error of a trial, marked if it is not a failure of xwarp.
	Judge func(row string, err error) error
}

// Trial is one row of the table.
type Trial[M machine] struct {
	What string
	Run  func(m M) (string, error)
}

// versionRow is the first row if columns have versions of their own.
const versionRow = "kernel"

// Main is the main function of a command, which ends when it is interrupted. The exit status is 1 after an error, or if
// trials failed.
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

// run runs the chosen trials on the chosen columns, one machine at a time, and returns the number of failed cells.
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

// fillColumn boots a machine and runs the trials in it, and in a new machine if that one ends.
func (s *Set[M]) fillColumn(ctx context.Context, c *Column[M], dir string, t *table.Table) error {
	if c.Version != nil {
		version, err := c.Version()
		if err != nil {
			return err
		}
		if v := (table.Cell{Text: version}); t.Columns[c.Title][versionRow] != v {
			delete(t.Columns, c.Title) // an earlier version's
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

// boot boots a machine, and retries if the emulator ends early: qemu 10 sometimes fails an assertion about its
// translation buffer.
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
