package main

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/doctor"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/plain"
	"xwarp/engine/transfer"
)

// hostile is a hostile name of a program, interface or export. It also starts a line that imitates the output of
// xwarp.
const hostile = "\x1b]0;owned\x07\x1b[2J\r\u009b2J\u202e\x7f\xffx\ndevice eth0"

// vandalise sets every text in v to hostile. Lists and maps get one element.
func vandalise(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		vandalise(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			vandalise(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		vandalise(key)
		vandalise(value)
		v.SetMapIndex(key, value)
	case reflect.Uint64, reflect.Int, reflect.Int64:
		if v.CanSet() && v.Type() != reflect.TypeFor[time.Duration]() {
			v.Set(reflect.ValueOf(7).Convert(v.Type()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				vandalise(v.Field(i))
			}
		}
	}
}

// Whatever the names of programs, peers, interfaces and files are, no output moves the cursor or starts a new line.
func TestEverythingPrintedIsPlain(t *testing.T) {
	var s control.Snapshot
	vandalise(reflect.ValueOf(&s).Elem())
	later := s
	later.Time = s.Time.Add(time.Second)
	var out bytes.Buffer
	check := func(name string, lines int, err error) {
		t.Helper()
		text := out.String()
		out.Reset()
		if err != nil || text == "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if plain.Text(text) != text || strings.Contains(text, "\ndevice eth0") {
			t.Errorf("%s prints %q", name, text)
		}
		if lines > 0 && strings.Count(text, "\n") != lines {
			t.Errorf("%s prints %d lines, want %d: %q", name, strings.Count(text, "\n"), lines,
				text)
		}
	}
	asJSON := func(name string, v any) {
		t.Helper()
		check(name+" in lines", 1, lineJSON(&out, v))
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		check(name+" --json", 0, printJSON(cmd, v))
	}
	for _, kind := range append([]string{""}, kinds...) {
		v := makeResources(&s, kind, &filters{})
		check("resource "+kind, 0, writeResources(&out, v))
		asJSON("resource "+kind, v)
	}
	check("status", 0, writeStatus(&out, &s.Status))
	asJSON("status", s.Status)
	links := linkInfo{Links: []linkRow{makeLink(control.Port{}, &s.Devices[0])}}
	check("link", 1, writeRows(&out, links.Links))
	asJSON("link", links)
	check("statistic", 0, writeStatistics(&out, makeStatistics(&s, true), true))
	asJSON("statistic", makeStatistics(&s, true))
	top := view.MakeTop(&s, &later)
	check("top", 0, writeTop(&out, &top, termSize{}))
	asJSON("top", top)
	check("monitor", 1, writeRow(&out, s.Events[0]))
	check("monitor --json", 1, lineJSON(&out, s.Events[0]))
	var d doctorInfo
	vandalise(reflect.ValueOf(&d).Elem())
	out.WriteString(doctorText(&d, true))
	check("doctor", 0, nil)
	asJSON("doctor", d)
	d.Lines[0].Status = doctor.OK
	out.WriteString(doctorText(&d, true))
	check("doctor, ok", 0, nil)
	ev := transfer.Event{Op: "store", File: hostile,
		Remote: netip.MustParseAddrPort("[fe80::1%eth0]:1"),
		Err:    errors.New(hostile)}
	for _, asJSON := range []bool{false, true} {
		p := eventPrinter{w: &out, json: asJSON}
		p.transfer(ev)
		check("serve", 1, nil)
	}
}

// Content of a server is not written to a terminal unless requested.
func TestCopyToTerminal(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	var stderr bytes.Buffer
	if status := execute(t.Context(), []string{"cp", "192.0.2.1:/file", "-"}, tty,
		&stderr); status != exitUsage || !strings.Contains(stderr.String(), "not for a terminal") {
		t.Errorf("status %d, %s", status, stderr.String())
	}
}

// Errors of commands, which may contain text of a peer or the name of a file, are escaped too.
func TestErrorsArePlain(t *testing.T) {
	var out, err bytes.Buffer
	if status := execute(t.Context(), []string{"serve", "/nowhere/" +
		strings.ReplaceAll(hostile, "\n", "")}, &out, &err); status != exitFailed {
		t.Errorf("status %d", status)
	}
	if text := err.String(); plain.Text(text) != text || !strings.Contains(text, `\x1b]0;owned`) {
		t.Errorf("%q", text)
	}
}
