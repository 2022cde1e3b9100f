package install

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// unit holds the keys of a unit file's [Service] section, each with its values in the order of the file.
type unit map[string][]string

func readUnit(path string) (unit, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	u, section := unit{}, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = line
		case ok && section == "[Service]" && !strings.HasPrefix(line, "#"):
			u[key] = append(u[key], value)
		}
	}
	return u, nil
}

// one returns the value of a key, "" if the key does not have exactly one.
func (u unit) one(key string) string {
	if v := u[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// TestExposure checks that systemd-analyze rates the exposure of the unit at most 2.6, as documented.
func TestExposure(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=26",
		"--no-pager", "xwarpd.service").CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: above 2.6: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	if !strings.Contains(string(out), "Overall exposure level for xwarpd.service") {
		t.Errorf("systemd-analyze says something else:\n%s", out)
	}
}
