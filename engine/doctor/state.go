package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DefaultState is the file of what --undo goes back to.
const DefaultState = "/var/lib/xwarp/doctor.json"

// record is one fix that was made, in the order in which they were.
type record struct {
	Check     string   `json:"check"`
	Interface string   `json:"interface,omitempty"`
	Before    settings `json:"before"`
}

// remember appends r to the file, which is never half written.
func remember(file string, r record) error {
	records, err := recall(file)
	if err != nil {
		return err
	}
	return store(file, append(records, r))
}

func recall(file string) (records []record, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &records); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it when nothing is to be undone", file, err)
	}
	return records, nil
}

func store(file string, records []record) error {
	if len(records) == 0 {
		return os.Remove(file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Undone is one fix that was taken back.
type Undone struct {
	Check     string            `json:"check" doc:"name of the check"`
	Interface string            `json:"interface,omitempty" doc:"that it was made for"`
	Before    map[string]string `json:"before" doc:"the settings that are there again"`
	Error     string            `json:"error,omitempty" doc:"why it could not be taken back; it stays in the file"`
}

// Undo takes back what Fix did, the last first. What cannot be taken back stays in the file.
func Undo(state string) ([]Undone, error) {
	records, err := recall(state)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	var done []Undone
	var left []record
	for i := len(records) - 1; i >= 0; i-- {
		r := records[i]
		u := Undone{Check: r.Check, Interface: r.Interface, Before: r.Before}
		if err := r.undo(); err != nil {
			u.Error = err.Error()
			left = append([]record{r}, left...)
		}
		done = append(done, u)
	}
	return done, store(state, left)
}

func (r *record) undo() error {
	for _, c := range checks {
		if c.name != r.Check || c.undo == nil {
			continue
		}
		e, done, err := newEnv(Options{Interface: r.Interface})
		if err != nil {
			return err
		}
		defer done()
		return c.undo(e, r.Before)
	}
	return fmt.Errorf("this version knows no fix called %q", r.Check)
}
