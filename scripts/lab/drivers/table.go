package main

import (
	"errors"
	"fmt"
	"strings"
)

// cell says what came of one trial on one driver.
type cell struct {
	text   string
	failed bool
}

func cellOf(text string, err error) cell {
	switch {
	case err == nil:
		return cell{text: strings.TrimSpace("ok " + strings.TrimSpace(text))}
	case errors.Is(err, errNotOffered):
		return cell{text: oneLine(err)}
	}
	return cell{text: "FAILED: " + oneLine(err), failed: true}
}

// oneLine is an error as a cell of markdown.
func oneLine(err error) string {
	return strings.NewReplacer("\n", "; ", "|", "\\|").Replace(err.Error())
}

// table is drivers by trials.
type table struct {
	versions string
	rows     []string
	names    []string
	columns  []map[string]cell
}

func (t *table) add(name string, column map[string]cell) {
	t.names = append(t.names, name)
	t.columns = append(t.columns, column)
}

func (t *table) failed() (n int) {
	for _, column := range t.columns {
		for _, c := range column {
			if c.failed {
				n++
			}
		}
	}
	return n
}

const preamble = `# xwarp on drivers of network cards

Written by ` + "`make drivers`" + `: virtual machines, emulated in software, whose cards are driven by Linux's own drivers; %s. Two cards of
one machine, each in a network namespace, are joined by a cable that can lose and corrupt frames. Each transfer is compared octet by octet. Figures in
MiB/s compare modes and drivers of this emulation with each other; they say nothing about the speed of real cards.

`

// markdown is the table for people.
func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, preamble, t.versions)
	b.WriteString("| | " + strings.Join(t.names, " | ") + " |\n|" + strings.Repeat("---|", len(t.names)+1) + "\n")
	for _, row := range t.rows {
		b.WriteString("| " + row)
		for _, column := range t.columns {
			b.WriteString(" | " + column[row].text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
