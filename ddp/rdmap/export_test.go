package rdmap

import "fmt"

// Names of events and actions in testdata/states.golden.

func (e Event) String() string {
	names := [events]string{"start", "start-waiting", "fpdu", "close-idle", "close-busy",
		"fin-clean", "fin-dirty",
		"local-error", "peer-terminate", "lost", "closed", "abort"}
	if e < events {
		return names[e]
	}
	return fmt.Sprintf("event %d", uint8(e))
}

func (a Action) String() string {
	s := ""
	for i, n := range [...]string{"FIN", "RST", "timer", "terminate", "flush"} {
		if a&(1<<i) != 0 {
			s += "+" + n
		}
	}
	if s == "" {
		return "-"
	}
	return s[1:]
}
