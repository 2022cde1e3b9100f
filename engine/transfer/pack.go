package transfer

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
)

// Taken has one bit for each file of a pack.
type Taken [MaxPacked / 8]byte

// Has reports whether file i is marked.
func (t *Taken) Has(i int) bool { return t[i/8]>>(i%8)&1 != 0 }

func (t *Taken) set(i int) { t[i/8] |= 1 << (i % 8) }

// Packed is a file of a pack. Content aliases the pack; it is empty in a pack of requests.
type Packed struct {
	Path    string
	Attr    Attr
	Content []byte
}

// parsePack returns the files of a pack.
func parsePack(b []byte) (files []Packed, err error) {
	for len(b) > 0 {
		var e Entry
		if e, b, err = parseEntry(b); err != nil {
			return nil, err
		}
		n := e.Attr.Length
		if n > uint64(len(b)) || len(files) == MaxPacked {
			return nil, ErrBody
		}
		files = append(files, Packed{e.Name, e.Attr, b[:n]})
		b = b[n:]
	}
	return files, nil
}

// storePack stores the files of a pack, except those that cannot be stored. The client sends these one by one and
// learns why.
func (c *copying) storePack(m *Message) error {
	b, err := c.inBuffer(0, m.Length)
	if err != nil {
		return err
	}
	if check := xxhash.Sum64(b); check != m.Check {
		return refuse(CodeSum, "XXH64 of a pack is %x, the client says %x", check, m.Check)
	}
	files, err := parsePack(b)
	if err != nil {
		return err
	}
	begun := time.Now()
	s := packStore{t: c.s.cfg.Tree, b: c.buffer}
	for i := range files {
		s.add(i, &files[i])
	}
	reply := Message{Type: TypePacked, Taken: s.commit()}
	c.packEvent("store", s.files, s.bytes, begun)
	return errors.Join(s.b.dirs.Close(), c.l.postMessage(&reply))
}

// packStore stores one pack.
type packStore struct {
	t     *Tree
	b     *buffer
	added []packedFile
	files int
	bytes int64
}

// packedFile is a staged file of a pack.
type packedFile struct {
	index  int // in the pack
	name   string
	length int64
	older  int64 // length of the content that it replaces; -1: none
}

// add stages one file, or skips it if it cannot be stored.
func (s *packStore) add(i int, v *Packed) {
	name := path.Clean(v.Path)
	if s.t.cfg.ReadOnly || !s.t.reserveName(name) {
		return
	}
	f := packedFile{index: i, name: name, length: int64(len(v.Content))}
	if !s.stage(&f, v) {
		s.t.releaseName(name)
		return
	}
	s.added = append(s.added, f)
}

// stage writes the content of f under its temporary name. It returns false if that fails.
func (s *packStore) stage(f *packedFile, v *Packed) bool {
	dir, base, err := s.t.enter(s.b.dirs, f.name)
	if err != nil || s.t.claim(f.length, 1) != nil {
		return false
	}
	f.older = dir.Length(base)
	err = s.b.batch.Add(dir, base, f.older >= 0, v.Attr.Perm(), v.Attr.Modified.Time(), v.Content)
	if err != nil {
		s.t.claim(-f.length, -1)
	}
	return err == nil
}

// commit names the files, and returns which of them it stored.
func (s *packStore) commit() (taken Taken) {
	for i, err := range s.b.batch.Commit() {
		switch f := &s.added[i]; {
		case err != nil:
			s.t.claim(-f.length, -1)
		default:
			taken.set(f.index)
			s.files++
			s.bytes += f.length
			if f.older >= 0 {
				s.t.claim(-f.older, -1)
			}
		}
		s.t.releaseName(s.added[i].name)
	}
	return taken
}

// enter returns the directory of a file of a pack, and the file's name in it. It opens each directory once.
func (t *Tree) enter(dirs staging.Dirs, name string) (*staging.Dir, string, error) {
	at, base := path.Split(path.Clean(name))
	if err := checkName(base); err != nil {
		return nil, "", err
	}
	d, err := dirs.Open(at, func() (*staging.Dir, error) {
		f, err := t.openDir(path.Join(".", at))
		if err != nil {
			return nil, err
		}
		return staging.NewDir(f), nil
	})
	return d, base, err
}

// fetchPack puts the requested files into a pack. It skips files that are too long or cannot be read.
func (c *copying) fetchPack(m *Message) error {
	b, err := c.inBuffer(0, m.Length)
	if err != nil {
		return err
	}
	wanted, err := parsePack(b)
	if err != nil {
		return err
	}
	begun := time.Now()
	reply := Message{Type: TypePacked}
	out := c.buffer.mr.Bytes()[:0:BufferLen]
	total, files := int64(0), 0
	for i := range wanted {
		longer, n := c.s.cfg.Tree.appendFile(out, c.buffer.dirs, wanted[i].Path)
		if longer == nil {
			continue
		}
		out = longer
		reply.Taken.set(i)
		total += n
		files++
	}
	reply.Length, reply.Check = uint64(len(out)), xxhash.Sum64(out)
	c.packEvent("fetch", files, total, begun)
	return errors.Join(c.buffer.dirs.Close(), c.l.postMessage(&reply))
}

// appendFile appends a file to a pack. It returns nil if that is not possible.
func (t *Tree) appendFile(b []byte, dirs staging.Dirs, name string) (_ []byte, length int64) {
	fd, err := t.openPacked(dirs, name)
	if err != nil {
		return nil, 0
	}
	defer unix.Close(fd)
	var st, now unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0
	}
	a := AttrOf(&st)
	n := int(min(a.Length, BufferLen))
	if a.Kind != KindFile || a.Length > PackedLen || entryLen+len(name)+n > cap(b)-len(b) {
		return nil, 0
	}
	b = appendEntry(b, &Entry{name, a})
	content := b[len(b) : len(b)+n]
	if got, err := unix.Pread(fd, content, 0); got != n || err != nil {
		return nil, 0
	}
	if err := unix.Fstat(fd, &now); err != nil || AttrOf(&now) != a {
		return nil, 0
	}
	return b[:len(b)+n], int64(n)
}

// openPacked opens a file for a pack. It does not follow a symbolic link at the end of the path: the client fetches
// such a file separately.
func (t *Tree) openPacked(dirs staging.Dirs, name string) (int, error) {
	d, base, err := t.enter(dirs, name)
	if err != nil {
		return -1, err
	}
	return d.OpenFD(base)
}

// packEvent counts the files of a pack, and reports them as one event.
func (c *copying) packEvent(op string, files int, bytes int64, begun time.Time) {
	if files == 0 {
		return
	}
	c.s.cfg.Stats.countMoved(op == "store", uint64(files), uint64(bytes))
	c.s.cfg.Event(Event{Op: op, File: fmt.Sprintf("%d small files", files), Remote: c.remote,
		Bytes: bytes, Took: time.Since(begun)})
}

// setAttr sets the permissions and modification time of a directory.
func (t *Tree) setAttr(m *Message) error {
	if t.cfg.ReadOnly {
		return errReadOnly
	}
	d, err := t.openDir(m.Path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err = d.Chmod(m.Attr.Perm()); err == nil {
		err = staging.SetTime(d, m.Attr.Modified.Time())
	}
	return err
}

// sync makes the files of all packs durable.
func (c *copying) sync() error {
	if c.buffer == nil {
		return nil
	}
	return c.buffer.batch.Sync()
}

// Perm returns the permissions without set-user-ID, set-group-ID and sticky bit, which a peer must not set.
func (a *Attr) Perm() os.FileMode { return os.FileMode(a.Mode & 0o777) }
