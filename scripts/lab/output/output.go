// Package output parses the output of xwarp commands for the lab's tables.
package output

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var object = regexp.MustCompile(`(?ms)^\{.*\}`)

// JSON decodes the JSON object in the output of a command into v. The output may have other text before and after the
// object.
func JSON(out string, v any) error {
	if err := json.Unmarshal([]byte(object.FindString(out)), v); err != nil {
		return fmt.Errorf("%w in %q", err, LastLine(out))
	}
	return nil
}

// LastLine returns the last line of output. A failed command gives the reason there.
func LastLine(out string) string {
	out = strings.TrimSpace(out)
	return out[strings.LastIndexByte(out, '\n')+1:]
}

// Moved is the output of xwarp cp --json.
type Moved struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Rate returns the rate in MiB/s.
func (m Moved) Rate() float64 { return float64(m.Bytes) / (1 << 20) / m.Seconds }

// Doctor summarises the output of xwarp doctor --fix --json: the checks that it fixed and warned about. It returns an
// error if a check failed.
func Doctor(out string) (string, error) {
	var v struct {
		Lines []struct {
			Check, Status, What, Error string
			Fixed                      bool
		}
	}
	if err := JSON(out, &v); err != nil {
		return "", err
	}
	var fixed, warn, fail []string
	for _, l := range v.Lines {
		switch {
		case l.Error != "":
			fail = append(fail, l.Check+": "+l.Error)
		case l.Fixed:
			fixed = append(fixed, l.Check)
		case l.Status == "warn":
			warn = append(warn, l.Check)
		case l.Status == "fail":
			fail = append(fail, l.Check+": "+l.What)
		}
	}
	if len(fail) > 0 {
		return "", fmt.Errorf("%s", strings.Join(fail, "; "))
	}
	return list("fixed", fixed) + list("warned about", warn), nil
}

func list(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " " + word + " " + strings.Join(names, ", ")
}

// Device is a device in the output of xwarp status --json.
type Device struct {
	Device, Trunk string
	XDPMode       string `json:"xdp_mode"`
	Copy          string
	Transmit      string
	VLAN          int
	Frames        uint64 `json:"rx_frames"`
	BusyPoll      string `json:"busy_poll"`
	Dropped       []struct {
		Cause  string
		Frames int
	}
}
