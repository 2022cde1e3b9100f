package main

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/bench/demo"
	"xwarp/cmd/xwarp/bench"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// documents are the JSON objects of the commands.
var documents = []struct {
	command string
	object  any
}{
	{"any command with --json that fails before it prints its own object", failure{}},
	{"xwarp demo --json", demo.Result{}},
	{"xwarp serve --json, one object per line", serveEvent{}},
	{"xwarp cp --json", cpResult{}},
	{"xwarp status --json", control.Status{}},
	{"xwarp resource show --json", resourceInfo{}},
	{"xwarp link show --json", linkInfo{}},
	{"xwarp dev show --json", devInfo{}},
	{"xwarp statistic show --json", statisticInfo{}},
	{"xwarp monitor --json, one object per line", control.EventRecord{}},
	{"xwarp top --json, one object per line", view.Top{}},
	{"xwarp capture --json", captureInfo{}},
	{"xwarp confirm --json", confirmInfo{}},
	{"xwarp reload --json", reloadInfo{}},
	{"xwarp doctor --json", doctorInfo{}},
	{"the file of xwarp doctor --report", reportDocument{}},
	{"xwarp config default --json", configText{}},
	{"xwarp config check --json", configCheck{}},
	{"xwarp config show --json", configInfo{}},
	{"xwarp explain --json", explanation{}},
	{"xwarp bench write_bw --json (and the other tests)", bench.Output{}},
	{"xwarp version --json", versionInfo{}},
}

// newJSONTopic returns the help topic that documents the JSON keys. It generates the text from the tags of the structs.
func newJSONTopic(*global) *cobra.Command {
	var b strings.Builder
	b.WriteString("Keys of the JSON objects printed with --json. A new version may add keys. " +
		"When a key is removed or changes\nmeaning, \"schema\" is incremented.\n")
	for _, d := range documents {
		fmt.Fprintf(&b, "\n%s\n", d.command)
		describe(&b, reflect.TypeOf(d.object), "  ")
	}
	return &cobra.Command{Use: "json", Short: "Keys of the JSON output",
		Long: b.String()}
}

// marshaler is implemented by types that marshal to text, such as addresses.
var marshaler = reflect.TypeFor[encoding.TextMarshaler]()

// describe lists the fields of a struct; fields of nested structs are indented.
func describe(b *strings.Builder, t reflect.Type, indent string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			describe(b, f.Type, indent)
			continue
		}
		fmt.Fprintf(b, "%s%-*s %s\n", indent, 36-len(indent), name, f.Tag.Get("doc"))
		inner, mark := f.Type, ""
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			if inner.Kind() == reflect.Slice {
				mark = "- "
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !inner.Implements(marshaler) {
			describe(b, inner, indent+"  "+mark)
		}
	}
}
