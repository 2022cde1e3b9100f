package plain

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for _, tc := range []struct{ in, line, text, field string }{
		{"eth0", "eth0", "eth0", "eth0"},
		{"", "", "", `""`},
		{"two words", "two words", "two words", `"two words"`},
		{"größer 用", "größer 用", "größer 用", `"größer 用"`},
		{"a\tb\nc", `a\tb\nc`, "a\tb\nc", `"a\tb\nc"`},
		{"\x1b[2J\x07\r", `\x1b[2J\a\r`, `\x1b[2J\a\r`, `"\x1b[2J\a\r"`},
		{"\u009b2J\x7f", `\u009b2J\x7f`, `\u009b2J\x7f`, `"\u009b2J\x7f"`},
		{"\x9b\xff", `\x9b\xff`, `\x9b\xff`, `"\x9b\xff"`},
		{"\u202etxt.exe", `\u202etxt.exe`, `\u202etxt.exe`, `"\u202etxt.exe"`},
		{"x\u00a07", `x\u00a07`, `x\u00a07`, `"x\u00a07"`},
		{`say "no"`, `say "no"`, `say "no"`, `"say \"no\""`},
		{`a\nb`, `a\nb`, `a\nb`, `"a\\nb"`},
		{"\ufffd", "\ufffd", "\ufffd", "\ufffd"},
	} {
		if got := Line(tc.in); got != tc.line {
			t.Errorf("Line(%q) = %s, want %s", tc.in, got, tc.line)
		}
		if got := Text(tc.in); got != tc.text {
			t.Errorf("Text(%q) = %s, want %s", tc.in, got, tc.text)
		}
		if got := Field(tc.in); got != tc.field {
			t.Errorf("Field(%q) = %s, want %s", tc.in, got, tc.field)
		}
	}
}

// TestJSON: the output of JSON is printable, and decodes to the original string.
func TestJSON(t *testing.T) {
	const in = "\x1b[2J \u009b2J \x7f \u202e größer 𝄞 \U000e0041 \u00a0"
	var b strings.Builder
	e := json.NewEncoder(JSON(&b))
	e.SetIndent("", "\t")
	if err := e.Encode(map[string]string{"program": in}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); Text(text) != text {
		t.Errorf("not printable: %q", text)
	}
	var out map[string]string
	if err := json.Unmarshal([]byte(b.String()), &out); err != nil || out["program"] != in {
		t.Errorf("%q, %v", out, err)
	}
}
