package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"xwarp/cmd/xwarp/explain"
)

func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		want   []string
	}{
		{[]string{"2/0/2"}, exitOK, []string{"Terminate 2/0/02 (bytes 20 02): MPA error: CRC " +
			"mismatch\n", "Usual causes\n  - ", "What to do\n  - ", "RFC 5044, 8\n"}},
		{[]string{"20", "06"}, exitOK, []string{"insufficient IRD"}},
		{[]string{"02", "02", "00"}, exitOK, []string{"CRC mismatch", "Note: ", "siw"}},
		{[]string{"5"}, exitOK, []string{"IBV_WC_WR_FLUSH_ERR", "Terminate 2/0/05"}},
		{[]string{"--list"}, exitOK, []string{"Terminate\n  0/0/00", "completion status\n",
			"event\n", "TCP\n", "error\n"}},
		{[]string{"gibberish"}, exitUsage, []string{`unknown code "gibberish"`, "explain --list"}},
		{nil, exitUsage, []string{"need either CODE or --list"}},
		{[]string{"--list", "5"}, exitUsage, []string{"need either CODE or --list"}},
	} {
		var out bytes.Buffer
		if got := execute(t.Context(), append([]string{"explain"}, tc.args...), &out,
			&out); got != tc.status {
			t.Errorf("explain %q: status %d", tc.args, got)
		}
		for _, w := range tc.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("explain %q lacks %q:\n%s", tc.args, w, out.String())
			}
		}
		if tc.status == exitOK && tc.args[0] != "--list" {
			for line := range strings.Lines(out.String()) {
				if len(line) > explainWidth+1 {
					t.Errorf("explain %q: a line of %d bytes: %s", tc.args, len(line), line)
				}
			}
		}
	}
	var out bytes.Buffer
	execute(t.Context(), []string{"explain", "--list", "--json"}, &out, &out)
	var all explanation
	if err := json.Unmarshal(out.Bytes(), &all); err != nil ||
		len(all.Entries) != len(explain.All()) {
		t.Errorf("--list --json: %d entries, %v", len(all.Entries), err)
	}
}
