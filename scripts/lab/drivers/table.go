package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// cell says what came of one trial on one driver.
type cell struct {
	Text   string
	Failed bool
}

func cellOf(text string, err error) cell {
	switch {
	case err == nil:
		return cell{Text: strings.TrimSpace("ok " + strings.TrimSpace(text))}
	case errors.Is(err, errNotOffered), errors.Is(err, errDriver):
		return cell{Text: oneLine(err)}
	}
	return cell{Text: "FAILED: " + oneLine(err), Failed: true}
}

// oneLine is an error as a cell of markdown.
func oneLine(err error) string {
	return strings.NewReplacer("\n", "; ", "|", "\\|").Replace(err.Error())
}

// table is what was tried with one kernel and one emulator: for each driver the cells by row. It is kept
// beside the binaries, so that a run of some drivers or rows completes those before.
type table struct {
	Versions string
	Columns  map[string]map[string]cell
}

// loadTable reads the table that an earlier run with the same versions left, or begins one.
func loadTable(file, versions string) (*table, error) {
	t := &table{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (remove it to begin anew)", file, err)
	}
	if t.Versions != versions || t.Columns == nil {
		t = &table{Versions: versions, Columns: map[string]map[string]cell{}}
	}
	return t, nil
}

func (t *table) save(file string) error {
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// set fills a cell.
func (t *table) set(driver, row string, c cell) {
	if t.Columns[driver] == nil {
		t.Columns[driver] = map[string]cell{}
	}
	t.Columns[driver][row] = c
}

func (t *table) failed() (n int) {
	for _, column := range t.Columns {
		for _, c := range column {
			if c.Failed {
				n++
			}
		}
	}
	return n
}

const preamble = `# xwarp on drivers of network cards

Written by ` + "`make drivers`" + `: virtual machines, emulated in software, whose cards are driven by Linux's own drivers;
%s.
Two cards of one machine, each in a network namespace, are joined by a cable that can lose and corrupt frames. Each
transfer is compared octet by octet. Figures in MiB/s compare modes and drivers of this emulation with each other; they
say nothing about the speed of real cards. "Not offered" is what driver or emulator do not have, with what a user is
told. A run with -only or -try replaces the cells that it tries and leaves the others.

`

// markdown is the table for people, with the drivers and rows that were tried.
func (t *table) markdown(drivers, rows []string) string {
	drivers = slices.DeleteFunc(slices.Clone(drivers), func(d string) bool {
		return t.Columns[d] == nil
	})
	var b strings.Builder
	fmt.Fprintf(&b, preamble, t.Versions)
	b.WriteString("| | " + strings.Join(drivers, " | ") + " |\n|" +
		strings.Repeat("---|", len(drivers)+1) + "\n")
	for _, row := range rows {
		b.WriteString("| " + row)
		for _, d := range drivers {
			b.WriteString(" | " + t.Columns[d][row].Text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
