package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/hostfile"
	"xwarp/engine/host/staging"
	"xwarp/engine/plain"
)

// TreeConfig configures a directory that clients copy files to and from.
type TreeConfig struct {
	Path     string
	ReadOnly bool
	// Size and Files are the maximum numbers of bytes, and of files and directories. Zero means no limit for bytes, and
	// DefaultMaxFiles.
	Size  int64
	Files int64
	Log   *slog.Logger // nil: no log
}

// Tree is a directory that clients copy files to and from. It may be used by several goroutines.
type Tree struct {
	root *os.Root
	cfg  TreeConfig

	mu          sync.Mutex
	used, files int64     // existing bytes and names, including staged ones
	counted     time.Time // when used and files were last counted
	claims      uint64    // calls of claim
	making      int       // directories being created
	parts       map[string]*part
	packNames   map[string]bool // names of files in packs being stored
}

// OpenTree opens a directory. Unless it is read-only, OpenTree removes the staged files of dead processes that are no
// longer of use: partial files, which can be resumed, stay for partialAge.
func OpenTree(cfg TreeConfig) (*Tree, error) {
	root, err := os.OpenRoot(cfg.Path)
	if err != nil {
		return nil, err
	}
	cfg.Files = cmp.Or(cfg.Files, DefaultMaxFiles)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	t := &Tree{root: root, cfg: cfg, parts: map[string]*part{}, packNames: map[string]bool{}}
	if cfg.ReadOnly {
		return t, nil
	}
	t.counted = time.Now()
	if t.used, t.files, err = t.countAndSweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", cfg.Path, err), root.Close())
	}
	return t, nil
}

// Close closes the directory. No client may be connected.
func (t *Tree) Close() error { return t.root.Close() }

// Path returns the path of the directory.
func (t *Tree) Path() string { return t.cfg.Path }

// Used returns the numbers of bytes, files and directories. They are not counted in a read-only directory.
func (t *Tree) Used() (byteCount, files int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used, t.files
}

// countAndSweep counts the files of the directory, and removes stale ones.
func (t *Tree) countAndSweep() (used, files int64, err error) {
	removed, r := 0, t.root
	old := time.Now().Add(-partialAge)
	err = fs.WalkDir(r.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Type().IsRegular() && staging.Stale(e.Name(), st.ModTime(), old) &&
			isUnlocked(r, name) {
			removed++
			return r.Remove(name)
		}
		files++
		if e.Type().IsRegular() {
			used += st.Size()
		}
		return nil
	})
	if removed > 0 {
		t.cfg.Log.Warn("deleted unfinished files of interrupted copies", "path", t.cfg.Path,
			"files", removed)
	}
	return used, files, err
}

// recount counts the files again before a claim that would be refused, because users of the host may have removed some.
// It does nothing while clients store files, and soon after the last count.
func (t *Tree) recount(byteCount int64) {
	t.mu.Lock()
	before := t.claims
	due := t.refusal(byteCount, 1) != nil && t.isIdle() && time.Since(t.counted) >= recountAfter
	if due {
		t.counted = time.Now()
	}
	t.mu.Unlock()
	if !due {
		return
	}
	used, files, err := t.countAndSweep()
	if err != nil {
		t.cfg.Log.Warn("cannot count the files of a full directory", "path", t.cfg.Path,
			"error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claims == before && t.isIdle() {
		t.used, t.files = used, files
	}
}

// isIdle reports whether no client stores anything. It must be called with mu held.
func (t *Tree) isIdle() bool { return len(t.parts)+len(t.packNames)+t.making == 0 }

// isUnlocked reports whether no process is working on a file. The file's owner may be unable to open it if a process
// was killed between setting its permissions and its name.
func isUnlocked(r *os.Root, name string) bool {
	f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		st, err := r.Lstat(name)
		return err == nil && int(st.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
	}
	if err != nil {
		return false
	}
	defer f.Close()
	return staging.Lock(f) == nil
}

// claim adds or subtracts bytes and files, unless added ones exceed the limits.
func (t *Tree) claim(byteCount, files int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refusal(byteCount, files); err != nil {
		return err
	}
	t.claims++
	t.used += byteCount
	t.files += files
	return nil
}

// refusal says why bytes and files do not fit, or returns nil. It must be called with mu held.
func (t *Tree) refusal(byteCount, files int64) error {
	if byteCount > 0 && t.cfg.Size > 0 && byteCount > t.cfg.Size-t.used {
		return refuse(CodeTooLarge, "%s does not fit: the directory uses %s of at most %s",
			plain.Size(uint64(byteCount)), plain.Size(uint64(t.used)),
			plain.Size(uint64(t.cfg.Size)))
	}
	if files > 0 && files > t.cfg.Files-t.files {
		return refuse(CodeTooLarge, "the directory has as many files and directories as "+
			"allowed: %d", t.files)
	}
	return nil
}

// reserveName reserves the name of a file for a pack, unless another client is writing the file. Two files of one name
// would both count as replacing the previous content.
func (t *Tree) reserveName(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parts[name] != nil || t.packNames[name] {
		return false
	}
	t.packNames[name] = true
	return true
}

func (t *Tree) releaseName(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.packNames, name)
}

// AttrOf returns the protocol's attributes of a file.
func AttrOf(st *unix.Stat_t) Attr {
	a := Attr{Mode: uint16(st.Mode & 0o7777),
		Modified: Time{int64(st.Mtim.Sec), uint32(st.Mtim.Nsec)}}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		a.Kind, a.Length = KindFile, uint64(st.Size)
		if st.Blocks*512 < st.Size-minHole {
			a.Flags |= FlagSparse
		}
		if st.Nlink > 1 {
			a.Flags |= FlagLinked
		}
	case unix.S_IFDIR:
		a.Kind, a.Node = KindDir, st.Ino^bits.RotateLeft64(st.Dev, 32)
	default:
		a.Kind = KindOther
	}
	return a
}

func fstat(f *os.File) (Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Attr{}, err
	}
	return AttrOf(&st), nil
}

// stat returns the attributes of the file at a path, with KindNone if it does not exist.
func (t *Tree) stat(name string) (Attr, error) {
	info, err := t.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Attr{}, nil
	}
	if err != nil {
		return Attr{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return AttrOf(&unix.Stat_t{Mode: st.Mode, Size: st.Size, Mtim: unix.Timespec(st.Mtim),
		Blocks: st.Blocks, Nlink: st.Nlink, Ino: st.Ino, Dev: st.Dev}), nil
}

// list returns the listing of a directory, without staged files.
func (t *Tree) list(dir string) (listing []byte, err error) {
	d, err := t.openDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(listStep)
		for _, name := range names {
			var st unix.Stat_t
			if staging.Leftover(name) ||
				unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // a staged file, or removed in the meantime
			}
			a := AttrOf(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				a = t.target(path.Join(dir, name))
			}
			listing = appendEntry(listing, &Entry{name, a})
		}
		switch {
		case len(listing) > maxListing:
			return nil, refuse(CodeTooLarge, "%s has too many names for one listing", dir)
		case errors.Is(err, io.EOF):
			return listing, nil
		case err != nil:
			return nil, err
		}
	}
}

// target returns the attributes of the target of a symbolic link, with FlagLink. A target that cannot be copied is
// KindOther.
func (t *Tree) target(name string) Attr {
	a, err := t.stat(name)
	if err != nil || a.Kind == KindNone {
		a = Attr{Kind: KindOther}
	}
	a.Flags |= FlagLink
	return a
}

// parent opens the directory of a path's last component, and returns that component.
func (t *Tree) parent(name string) (*os.File, string, error) {
	if t.cfg.ReadOnly {
		return nil, "", errReadOnly
	}
	dir, base := path.Split(path.Clean(name))
	if err := checkName(base); err != nil {
		return nil, "", err
	}
	d, err := t.openDir(path.Join(".", dir))
	return d, base, err
}

var errReadOnly = refuse(CodeFile, "the directory is exported read-only")

func (t *Tree) openDir(name string) (*os.File, error) {
	return hostfile.Beneath(t.root, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// checkName fails for a name that a client's file must not have.
func checkName(base string) error {
	switch {
	case base == "" || base == "." || base == "..":
		return refuse(CodeFile, "%q is not a file name", base)
	case len(base) > staging.MaxName:
		return refuse(CodeFile, "%s: a name has at most %d bytes", base, staging.MaxName)
	case staging.Leftover(base):
		return refuse(CodeFile, "%s: this suffix is reserved for files being copied", base)
	}
	return nil
}

// mkdir creates a directory, unless it exists.
func (t *Tree) mkdir(name string, mode uint16) error {
	d, base, err := t.parent(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if a, err := t.stat(name); err == nil && a.Kind == KindDir {
		return nil
	}
	t.recount(0)
	if err := t.claim(0, 1); err != nil {
		return err
	}
	t.addMaking(1)
	defer t.addMaking(-1)
	err = unix.Mkdirat(int(d.Fd()), base, uint32(mode&0o777|0o700)) // without 0o700 nothing could be copied into it
	if err == nil {
		return nil
	}
	t.claim(0, -1)
	return &fs.PathError{Op: "mkdir", Path: filepath.Join(t.cfg.Path, name), Err: err}
}

func (t *Tree) addMaking(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making += n
}
