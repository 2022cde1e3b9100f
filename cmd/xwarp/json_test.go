package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every key of a printed object is documented.
func TestJSONKeysAreDocumented(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.Implements(marshaler) {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			if !f.Anonymous && (f.Tag.Get("json") == "" || f.Tag.Get("doc") == "") {
				t.Errorf("%s.%s has no json or no doc tag", path, f.Name)
			}
			walk(path+"."+f.Name, f.Type)
		}
	}
	for _, d := range documents {
		walk(reflect.TypeOf(d.object).Name(), reflect.TypeOf(d.object))
	}
}

// Every command has a flag -j for JSON output, except those in none.
func TestJSONEverywhere(t *testing.T) {
	none := map[string]bool{ // commands that write files, print another program's output, or print help
		"run":          true,
		"bench matrix": true, "bench local": true, "json": true, "completion bash": true,
		"completion zsh": true, "completion fish": true,
		"completion powershell": true,
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		name := strings.TrimPrefix(c.CommandPath(), "xwarp ")
		if c.HasSubCommands() || !c.IsAvailableCommand() || !c.HasParent() || none[name] {
			return
		}
		c.InheritedFlags()
		if f := c.Flags().Lookup("json"); f == nil || f.Shorthand != "j" ||
			f == c.Root().PersistentFlags().Lookup("json") {
			t.Errorf("%s has no -j", name)
		}
	}
	walk(newRoot())
}

// TestJSONOfErrors runs each command that has -j with wrong arguments and without a daemon: it must print one object
// with the error and keep its exit status.
func TestJSONOfErrors(t *testing.T) {
	check := func(want int, args ...string) {
		t.Helper()
		var out, stderr bytes.Buffer
		status := execute(t.Context(), args, &out, &stderr)
		var v struct {
			Command string
			OK      *bool
			Error   string
		}
		d := json.NewDecoder(&out)
		err := d.Decode(&v)
		if status != want || err != nil || v.Command == "" || v.OK == nil || *v.OK ||
			v.Error == "" || d.More() {
			t.Errorf("%v: status %d, want %d; %v, %+v", args, status, want, err, v)
		}
	}
	checked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		f := c.Flag("json")
		if !c.Runnable() || f == nil || f == c.Root().PersistentFlags().Lookup("json") {
			return
		}
		checked++
		path := strings.Fields(c.CommandPath())[1:]
		check(exitUsage, append(path, "--no-such-flag", "-j")...)
		// capture needs a file first; a command with --transport works without a daemon.
		if c.Flag("socket") != nil && c.Flag("transport") == nil && c.Name() != "capture" {
			check(exitFailed, append(path, "-j", "--socket", "/nowhere/control.sock")...)
		}
	}
	walk(newRoot())
	if checked < 20 {
		t.Errorf("only %d commands have -j", checked)
	}
	check(exitFailed, "serve", "/nowhere/dir", "-j")
	check(exitUsage, "serve", "-j")
	check(exitFailed, "cp", "192.0.2.1:/f", t.TempDir()+"/f", "-j", "--interface", "none0",
		"--transport", "xdp")
	check(exitFailed, "config", "show", "-j", "--config", "/nowhere/xwarp.toml")
	check(exitUsage, "cp", "-j", "a", "b")
}

// An empty list is printed, so that readers need not handle a missing one.
func TestEmptyListsArePresent(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.Implements(marshaler) {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Type.Kind() == reflect.Slice && strings.Contains(f.Tag.Get("json"), "omitempty") {
				t.Errorf("%s.%s is left out when it is empty", path, f.Name)
			}
			walk(path+"."+f.Name, f.Type)
		}
	}
	for _, d := range documents {
		walk(reflect.TypeOf(d.object).Name(), reflect.TypeOf(d.object))
	}
}

// The form of remote arguments is that of scp and rsync, with a port between colon and slash.
func TestSplitRemote(t *testing.T) {
	for _, tc := range []struct {
		in, server, name string // empty server: local
	}{
		{"h:/a/b", "h", "a/b"},
		{"h:a/b", "h", "a/b"},
		{"h:", "h", ""},
		{"h:/", "h", ""},
		{"h:9000/", "h:9000", ""},
		{"h:9000/a:b", "h:9000", "a:b"},
		{"h:9000", "h", "9000"},
		{"h://a", "h", "/a"},
		{"[2001:db8::1]:/a", "[2001:db8::1]", "a"},
		{"[fe80::1%eth0]:7174/a/", "[fe80::1%eth0]:7174", "a/"},
		{"a", "", ""},
		{"-", "", ""},
		{"./h:/a", "", ""},
		{"/h:/a", "", ""},
		{"d/h:a", "", ""},
		{":/a", "", ""},
		{"[a]", "", ""},
		{"", "", ""},
	} {
		server, name, remote := splitRemote(tc.in)
		if server != tc.server || name != tc.name || remote != (tc.server != "") {
			t.Errorf("%q: %q %q %v", tc.in, server, name, remote)
		}
	}
}

func TestSplitPort(t *testing.T) {
	for _, tc := range []struct {
		in, host string
		port     uint16
		ok       bool
	}{
		{"h", "h", defaultPort, true},
		{"h:1", "h", 1, true},
		{":9", "", 9, true},
		{"", "", defaultPort, true},
		{"192.0.2.1:80", "192.0.2.1", 80, true},
		{"2001:db8::1", "2001:db8::1", defaultPort, true},
		{"[2001:db8::1]", "2001:db8::1", defaultPort, true},
		{"[::]:7", "::", 7, true},
		{"fe80::1%eth0", "fe80::1%eth0", defaultPort, true},
		{"h:", "", 0, false},
		{"h:-1", "", 0, false},
		{"h:65536", "", 0, false},
		{"a:b:c", "", 0, false},
		{"[::1", "", 0, false},
	} {
		host, port, err := splitPort(tc.in)
		if (err == nil) != tc.ok || host != tc.host || port != tc.port {
			t.Errorf("%q: %q %d %v", tc.in, host, port, err)
		}
	}
}
