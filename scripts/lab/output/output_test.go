package output

import "testing"

// TestJSON checks that log lines around the object do not matter, even with braces in them.
func TestJSON(t *testing.T) {
	var m Moved
	err := JSON("level=WARN stats={0 1}\n{\n\t\"bytes\": 1048576,\n\t\"seconds\": 2\n}\nthe end\n", &m)
	if err != nil || m.Rate() != 0.5 {
		t.Errorf("%+v, %v", m, err)
	}
	if err := JSON("xwarp cp: refused\n", &m); err == nil {
		t.Error("there is no object")
	}
}

func TestDoctor(t *testing.T) {
	text, err := Doctor(`{"Lines": [{"Check": "a", "Status": "ok"}, {"Check": "b", "Status": "ok",
		"Fixed": true}, {"Check": "c", "Status": "warn"}]}`)
	if text != " fixed b warned about c" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	_, err = Doctor(`{"Lines": [{"Check": "a", "Status": "fail", "What": "no"},
		{"Check": "b", "Status": "warn", "Error": "refused"}]}`)
	if err == nil || err.Error() != "a: no; b: refused" {
		t.Error(err)
	}
}
