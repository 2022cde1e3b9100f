package daemon

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"xwarp/engine/daemon/control"
)

// sysfsInterval is the interval of updates.
const sysfsInterval = time.Second

// sysfsTree is a directory beside the control socket with the files that the kernel would have below
// /sys/class/infiniband. It has a subdirectory for each style of devices, iwarp and roce. The library for unmodified
// programs redirects their accesses to /sys there. Anyone who can see the directory of the socket may read it: it has
// only names, states and addresses.
type sysfsTree struct {
	parent *os.Root
	name   string // of the directory, in parent

	mu      sync.Mutex
	root    *os.Root          // nil if closed
	written map[string]string // content of the files by path
}

// openSysfs creates the directory, replacing one left by a killed daemon. The modes do not depend on the umask, which
// is 0077 in the packaged unit.
func openSysfs(socket string) (*sysfsTree, error) {
	parent, err := os.OpenRoot(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	t := &sysfsTree{parent: parent, name: filepath.Base(control.SysfsPath(socket)),
		written: map[string]string{}}
	err = parent.RemoveAll(t.name)
	if err == nil {
		err = parent.Mkdir(t.name, 0o755)
	}
	if err == nil {
		t.root, err = parent.OpenRoot(t.name)
	}
	if err == nil {
		err = t.root.Chmod(".", 0o755)
	}
	if err != nil {
		parent.Close()
		return nil, err
	}
	return t, nil
}

// write replaces the files by those of the map. After close it does nothing. Readers see the old or the new content of
// a file. A content that begins with / is the target of a symbolic link.
func (t *sysfsTree) write(files map[string]string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root == nil {
		return nil
	}
	var errs []error
	for name, text := range files {
		if before, there := t.written[name]; there && before == text {
			continue
		}
		err := t.writeFile(name, text)
		if err == nil {
			t.written[name] = text
		}
		errs = append(errs, err)
	}
	for name := range t.written {
		if _, there := files[name]; !there {
			delete(t.written, name)
			if err := t.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for p := path.Dir(name); p != "." && t.root.Remove(p) == nil; { // directories that are empty now
				p = path.Dir(p)
			}
		}
	}
	return errors.Join(errs...)
}

// writeFile replaces a file and creates its directories, readable by all users.
func (t *sysfsTree) writeFile(name, text string) error {
	err := t.root.MkdirAll(path.Dir(name), 0o755)
	for p := path.Dir(name); err == nil && p != "."; p = path.Dir(p) {
		err = t.root.Chmod(p, 0o755)
	}
	const next = "next"
	switch {
	case err != nil:
	case strings.HasPrefix(text, "/"):
		err = t.root.Symlink(text, next)
	default:
		if err = t.root.WriteFile(next, []byte(text+"\n"), 0o644); err == nil {
			err = t.root.Chmod(next, 0o644)
		}
	}
	if err == nil {
		err = t.root.Rename(next, name)
	}
	return err
}

// close removes the directory. It does nothing if t is nil.
func (t *sysfsTree) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root.Close()
	t.root = nil
	t.parent.RemoveAll(t.name)
	t.parent.Close()
}

// writeSysfs writes the files of all devices.
func (d *Daemon) writeSysfs() error {
	files := map[string]string{}
	for _, v := range d.deviceList() {
		maps.Copy(files, v.SysfsFiles())
	}
	return d.sysfs.write(files)
}

// sysfsLoop updates the files until ctx is done.
func (d *Daemon) sysfsLoop(ctx context.Context) {
	tick := time.Tick(sysfsInterval)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		err := d.writeSysfs()
		if err != nil && !failing {
			d.log.Warn("cannot write the files that replace /sys/class/infiniband: ibstat may find no device", "error", err)
		}
		failing = err != nil
	}
}
