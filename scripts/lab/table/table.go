// Package table keeps what the lab's machines have shown and writes it as tables for people: a column for each
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

// Reasons that make an error no failure of xwarp.
var (
	ErrNotOffered = errors.New("not offered") // not there, and not claimed to be there
	ErrElsewhere  = errors.New("no")          // somebody else's fault
)

// Cell says what came of one trial.
type Cell struct {
	Text   string
	Failed bool
}

// CellOf returns the result of a trial: figures that show that it works, or an error.
func CellOf(text string, err error) Cell {
	switch {
	case err == nil:
		return Cell{Text: strings.TrimSpace("ok " + strings.TrimSpace(text))}
	case errors.Is(err, ErrNotOffered), errors.Is(err, ErrElsewhere):
		return Cell{Text: oneLine(err)}
	}
	return Cell{Text: "FAILED: " + oneLine(err), Failed: true}
}

// oneLine is an error as a cell of markdown.
func oneLine(err error) string {
	return strings.NewReplacer("\n", "; ", "|", "\\|").Replace(err.Error())
}

// Table is what was tried with these versions: for each column the cells by row. It is kept in a file, so that
// a run of some columns or rows completes those before.
type Table struct {
	Versions string
	Columns  map[string]map[string]Cell
}

// Load reads the table that an earlier run with the same versions left, or begins one.
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

// Save writes the file that Load reads.
func (t *Table) Save(file string) error {
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// Set fills a cell.
func (t *Table) Set(column, row string, c Cell) {
	if t.Columns[column] == nil {
		t.Columns[column] = map[string]Cell{}
	}
	t.Columns[column][row] = c
}

// Failed counts the cells that have failed.
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

// Markdown is the table for people, with those of the columns that were tried, and the rows.
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
