package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"xwarp/engine/host/hostfile"
)

// DefaultState is the file with the settings that --undo restores. Only root can write to its directory: the daemon's
// user, who owns /var/lib/xwarp, must not control what root writes.
const DefaultState = "/var/lib/xwarp-doctor/state.json"

// record is one fix. The state file holds the records in the order of the fixes.
type record struct {
	Check     string   `json:"check" doc:"name of the check"`
	Interface string   `json:"interface,omitempty" doc:"interface that was fixed"`
	Before    settings `json:"before" doc:"previous settings"`
}

// lockedState is an open state file, whose directory is locked until it is closed.
type lockedState struct {
	dir  *hostfile.Dir
	name string
}

// openState opens the directory of a state file. The file may not exist yet. With create, openState creates the
// directory if it does not exist.
func openState(file string, create bool) (*lockedState, error) {
	dir, err := hostfile.OpenDir(filepath.Dir(file), create)
	if err != nil {
		return nil, fmt.Errorf("state file: %w (see --state)", err)
	}
	return &lockedState{dir, filepath.Base(file)}, nil
}

func (m *lockedState) readRecords() (records []record, err error) {
	b, err := m.dir.Read(m.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &records); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it if there is nothing to undo", m.name,
			err)
	}
	return records, nil
}

func (m *lockedState) writeRecords(records []record) error {
	if len(records) == 0 {
		return m.dir.Remove(m.name)
	}
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	return m.dir.Write(m.name, append(b, '\n'))
}

// appendRecord appends r to the file atomically.
func appendRecord(file string, r record) error {
	m, err := openState(file, true)
	if err != nil {
		return err
	}
	records, err := m.readRecords()
	if err == nil {
		err = m.writeRecords(append(records, r))
	}
	return errors.Join(err, m.dir.Close())
}

// Undone is one fix that was undone.
type Undone struct {
	record
	Error string `json:"error,omitempty" doc:"why undo failed; the record stays in the state file"`
}

// Undo reverts Fix, the last change first. Changes that cannot be reverted stay in the file.
func Undo(state string) (done []Undone, err error) { return undo(state, Options{}) }

func undo(state string, o Options) (done []Undone, err error) {
	m, err := openState(state, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.dir.Close()) }()
	records, err := m.readRecords()
	if err != nil || len(records) == 0 {
		return nil, err
	}
	var left []record
	for _, r := range slices.Backward(records) {
		u := Undone{record: r}
		if err := r.undo(o); err != nil {
			u.Error = err.Error()
			left = append([]record{r}, left...)
		}
		done = append(done, u)
	}
	err = m.writeRecords(left)
	if dir := filepath.Dir(state); err == nil && len(left) == 0 &&
		filepath.Base(dir) == filepath.Base(filepath.Dir(DefaultState)) {
		os.Remove(dir) // fails while another file of --state is in it
	}
	return done, err
}

func (r *record) undo(o Options) error {
	for _, c := range checks {
		if c.name != r.Check || c.want == nil {
			continue
		}
		o.Interface = r.Interface
		e, done, err := newEnv(o)
		if err != nil {
			return err
		}
		defer done()
		return c.putAll(e, r.Before)
	}
	return fmt.Errorf("this version has no fix %q", r.Check)
}
