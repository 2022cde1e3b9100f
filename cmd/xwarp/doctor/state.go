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

// DefaultState is the file with the settings that --undo restores. Its directory is root's: the daemon's own user, who
// has /var/lib/xwarp, must not decide what root writes.
const DefaultState = "/var/lib/xwarp-doctor/state.json"

// record is one fix that was made, in the order in which they were.
type record struct {
	Check     string   `json:"check" doc:"name of the check"`
	Interface string   `json:"interface,omitempty" doc:"that it was made for"`
	Before    settings `json:"before" doc:"the settings that were there before"`
}

// memory is the file of the records, and nobody else's until it is closed.
type memory struct {
	dir  *hostfile.Dir
	name string
}

// openMemory opens the directory of a file, which need not be there yet; with create the directory neither.
func openMemory(file string, create bool) (*memory, error) {
	dir, err := hostfile.OpenDir(filepath.Dir(file), create)
	if err != nil {
		return nil, fmt.Errorf("the file of what was there before: %w (see --state)", err)
	}
	return &memory{dir, filepath.Base(file)}, nil
}

func (m *memory) recall() (records []record, err error) {
	b, err := m.dir.Read(m.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &records); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it when nothing is to be undone", m.name,
			err)
	}
	return records, nil
}

func (m *memory) store(records []record) error {
	if len(records) == 0 {
		return m.dir.Remove(m.name)
	}
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	return m.dir.Write(m.name, append(b, '\n'))
}

// remember appends r to the file, which is never half written.
func remember(file string, r record) error {
	m, err := openMemory(file, true)
	if err != nil {
		return err
	}
	records, err := m.recall()
	if err == nil {
		err = m.store(append(records, r))
	}
	return errors.Join(err, m.dir.Close())
}

// Undone is one fix that was taken back.
type Undone struct {
	record
	Error string `json:"error,omitempty" doc:"why it could not be taken back; it stays in the file"`
}

// Undo reverts Fix, the last change first. Changes that cannot be reverted stay in the file.
func Undo(state string) (done []Undone, err error) { return undo(state, Options{}) }

func undo(state string, o Options) (done []Undone, err error) {
	m, err := openMemory(state, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.dir.Close()) }()
	records, err := m.recall()
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
	err = m.store(left)
	if dir := filepath.Dir(state); err == nil && len(left) == 0 &&
		filepath.Base(dir) == filepath.Base(filepath.Dir(DefaultState)) {
		os.Remove(dir) // fails while another file of --state is in it
	}
	return done, err
}

func (r *record) undo(o Options) error {
	for _, c := range checks {
		if c.name != r.Check || c.undo == nil {
			continue
		}
		o.Interface = r.Interface
		e, done, err := newEnv(o)
		if err != nil {
			return err
		}
		defer done()
		return c.undo(e, r.Before)
	}
	return fmt.Errorf("this version knows no fix called %q", r.Check)
}
