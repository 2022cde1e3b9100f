package main

import (
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// What an export for transfer moved is a line of status; an export of memory has none.
func TestStatusOfTransfers(t *testing.T) {
	s := control.Snapshot{Exports: []control.ExportState{
		{Name: "scratch", Serve: "memory"},
		{Name: "images", Serve: "transfer", Transfers: map[string]uint64{"puts": 1,
			"put_octets": 4096, "gets": 3, "get_octets": 12288, "failed": 2}},
	}}
	var b strings.Builder
	if err := writeStatus(&b, view.MakeStatus(&s)); err != nil {
		t.Fatal(err)
	}
	const line = "  1 put of 4096 octets, 3 gets of 12288, 2 failed\n"
	_, after, _ := strings.Cut(b.String(), "export images")
	if strings.Count(b.String(), " gets of ") != 1 || !strings.Contains(after, line) {
		t.Errorf("want %q in\n%s", line, &b)
	}
}
