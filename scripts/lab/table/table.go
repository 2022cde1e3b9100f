// Package table keeps the results of trials in the lab's machines and writes them as Markdown tables: a column for each
// kind of machine, a row for each trial.
package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Errors that wrap one of these are not failures of xwarp.
var (
	ErrNotOffered = errors.New("not offered") // the machine lacks the tested feature
	ErrForeignBug = errors.New("no")          // a bug outside xwarp is the cause
)

// Cell is the result of one trial.
type Cell struct {
	Text   string
	Failed bool
}

// CellOf returns the cell of a trial that ended with err or, if err is nil, with figures as text.
func CellOf(text string, err error) Cell {
	switch {
	case err == nil:
		return Cell{Text: strings.TrimSpace("ok " + strings.TrimSpace(text))}
	case errors.Is(err, ErrNotOffered), errors.Is(err, ErrForeignBug):
		return Cell{Text: oneLine(err)}
	}
	return Cell{Text: "FAILED: " + oneLine(err), Failed: true}
}

// oneLine returns the text of an error in one line that can stand in a Markdown table.
func oneLine(err error) string {
	return strings.NewReplacer("\n", "; ", "|", "\\|").Replace(err.Error())
}

// Table has the results of all trials with the same versions: for each column the cells by row. It is kept in a file,
// so that a run of only some columns or rows adds to the results of earlier runs.
type Table struct {
	Versions string
	Columns  map[string]map[string]Cell
}

// Load reads the table of earlier runs from a file. If there is none, or it is of other versions, Load returns an empty
// table.
func Load(file, versions string) (*Table, error) {
	t := &Table{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (remove the file to start again)", file, err)
	}
	if t.Versions != versions || t.Columns == nil {
		t = &Table{Versions: versions, Columns: map[string]map[string]Cell{}}
	}
	return t, nil
}

// Save writes the table to a file for Load.
func (t *Table) Save(file string) error {
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// Set sets the cell in a column and row.
func (t *Table) Set(column, row string, c Cell) {
	if t.Columns[column] == nil {
		t.Columns[column] = map[string]Cell{}
	}
	t.Columns[column][row] = c
}

// Failed returns the number of failed cells.
func (t *Table) Failed() (n int) {
	for _, column := range t.Columns {
		for _, c := range column {
			if c.Failed {
				n++
			}
		}
	}
	return n
}

// Markdown returns the table as Markdown, with the given rows, and with those of the given columns that have a cell.
func (t *Table) Markdown(columns, rows []string) string {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool {
		return t.Columns[c] == nil
	})
	var b strings.Builder
	b.WriteString("| | " + strings.Join(columns, " | ") + " |\n|" +
		strings.Repeat("---|", len(columns)+1) + "\n")
	for _, row := range rows {
		b.WriteString("| " + row)
		for _, c := range columns {
			b.WriteString(" | " + t.Columns[c][row].Text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
