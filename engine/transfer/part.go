package transfer

import (
	"errors"
	"net/netip"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/hostfile"
	"xwarp/engine/host/staging"
)

// part is a file being received. All connections of a session write to it.
type part struct {
	t        *Tree
	path     string
	session  uint64
	attr     Attr
	dir      *staging.Dir
	file     *staging.File
	resumed  bool
	released chan struct{} // closed when others may use the name
	// guarded by Tree.mu
	users  []*copying // connections that write the file
	wanted time.Time  // when another client last requested the name
}

// store opens a file for writing, alone or with other connections of the session. It resumes an interrupted file of the
// same name.
func (t *Tree) store(c *copying, m *Message) (*part, error) {
	name := path.Clean(m.Path)
	p, busy := t.join(c, name, m)
	if busy != nil && busy.probe() {
		p, busy = t.join(c, name, m)
	}
	switch {
	case busy != nil:
		return nil, refuse(CodeFile, "%s: another client (%v) is writing it: copy it again later",
			name, busy.writer())
	case p.file != nil:
		return p, nil
	}
	if err := p.openStage(); err != nil {
		t.mu.Lock()
		p.releaseName()
		t.mu.Unlock()
		return nil, err
	}
	return p, nil
}

// join adds c to the connections that write a file. If another client is writing it, or it is not ready to be shared,
// join returns its part as busy instead.
func (t *Tree) join(c *copying, name string, m *Message) (p, busy *part) {
	t.recount(int64(min(m.Attr.Length, MaxFile)))
	t.mu.Lock()
	defer t.mu.Unlock()
	p = t.parts[name]
	switch {
	case p == nil:
		p = &part{t: t, path: name, session: m.Session, attr: m.Attr, released: make(chan struct{})}
		t.parts[name] = p // others must wait for it
	case p.session != m.Session || p.attr != m.Attr || p.file == nil || p.isStream():
		if p.session != m.Session {
			p.wanted = time.Now()
		}
		return nil, p
	}
	p.users = append(p.users, c)
	return p, nil
}

// isStream reports whether the length of the file is unknown until its end. One connection alone writes such a file.
func (p *part) isStream() bool { return p.attr.Flags&FlagStream != 0 }

// grow makes room for n more bytes of a stream.
func (p *part) grow(n uint64) error {
	if n > MaxFile-p.attr.Length {
		return refuse(CodeTooLarge, "a file may have %d bytes", int64(MaxFile))
	}
	if err := p.t.claim(int64(n), 0); err != nil {
		return err
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.attr.Length += n
	return nil
}

// probe checks whether the clients that write a file are alive: the host of a dead one answers a message with RST. It
// reports whether the name of the file was released meanwhile.
func (p *part) probe() bool {
	p.t.mu.Lock()
	users := slices.Clone(p.users)
	p.t.mu.Unlock()
	for _, c := range users {
		if c.l != nil {
			c.l.postMessage(&Message{Type: TypeBeat}) // after an error the connection is gone
		}
	}
	select {
	case <-p.released:
		return true
	case <-time.After(probeWait):
		return false
	}
}

// writer returns the address of a client that is writing the file.
func (p *part) writer() netip.AddrPort {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if len(p.users) == 0 {
		return netip.AddrPort{}
	}
	return p.users[0].remote
}

func (p *part) openStage() error {
	if p.attr.Length > MaxFile || p.isStream() && p.attr.Length > 0 {
		return refuse(CodeTooLarge, "a file may have %d bytes, a stream 0 at its start",
			int64(MaxFile))
	}
	d, base, err := p.t.parent(p.path)
	if err != nil {
		return err
	}
	p.dir = staging.NewDir(d)
	if a, err := p.t.stat(p.path); err == nil && a.Kind != KindFile && a.Kind != KindNone {
		err := refuse(CodeFile, "%s is there, and is no regular file", p.path)
		return errors.Join(err, d.Close())
	}
	f, err := p.dir.Resume(base, p.attr.Perm()|0o600)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	if err := p.room(f); err != nil {
		return errors.Join(err, d.Close())
	}
	p.t.mu.Lock()
	p.file = f
	p.t.mu.Unlock()
	return nil
}

// room claims space in the directory for f, sets its length and allocates it. After an error f is closed, and removed
// unless it had bytes and was not changed.
func (p *part) room(f *staging.File) error {
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Keep())
	}
	length, before := int64(p.attr.Length), st.Size()
	came := int64(0) // number of new files
	if before == 0 {
		came = 1
	}
	if err := p.t.claim(length-before, came); err != nil {
		if before == 0 {
			return errors.Join(err, f.Drop())
		}
		return errors.Join(err, f.Keep())
	}
	p.resumed = before > 0
	if err = f.Truncate(min(before, length)); err == nil {
		err = p.allocate(f)
	}
	if err != nil {
		p.t.claim(-length, -1)
		return errors.Join(err, f.Drop())
	}
	return nil
}

// allocate sets the length of f, and allocates it on disk unless the file has holes.
func (p *part) allocate(f *staging.File) error {
	if p.attr.Flags&FlagSparse != 0 {
		return f.Truncate(int64(p.attr.Length))
	}
	return f.Allocate(int64(p.attr.Length))
}

// commit gives the file its name. It fails if other connections still write to it.
func (p *part) commit() error {
	if !p.alone() {
		return refuse(CodeProtocol, "%s: other connections still write it", p.path)
	}
	replaced, err := p.t.stat(p.path)
	if err == nil && !p.isStream() {
		err = staging.SetTime(p.file.File, p.attr.Modified.Time())
	}
	if err == nil {
		err = p.file.CommitAs(p.attr.Perm())
	}
	if err != nil && !errors.Is(err, staging.ErrUnsure) {
		return err
	}
	p.t.mu.Lock()
	p.users = nil
	p.t.mu.Unlock()
	if replaced.Kind == KindFile {
		p.t.claim(-int64(replaced.Length), -1)
	}
	return errors.Join(err, p.file.Close(), p.dir.Close())
}

// alone reports whether only one connection has the file. If so, no other can join from then on.
func (p *part) alone() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if len(p.users) == 1 {
		p.releaseName()
	}
	return len(p.users) == 1
}

// pressed reports whether another client requested the name so recently that it may retry.
func (p *part) pressed(idle time.Duration) bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return time.Since(p.wanted) < wantedIdles*idle
}

// sharers is the number of connections that write the file. The minimum rate while others wait applies to all of them
// together.
func (p *part) sharers() uint64 {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return uint64(max(len(p.users), 1))
}

// releaseName releases the name of the file and prevents further connections from joining. Tree.mu is held.
func (p *part) releaseName() {
	if p.t.parts[p.path] == p {
		delete(p.t.parts, p.path)
		close(p.released)
	}
}

// leave ends the use of the file by one connection. After the last one the file is kept for resuming, unless it is
// short or a stream, which cannot be resumed.
func (p *part) leave(c *copying) error {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if len(p.users) == 0 {
		return nil // it was committed
	}
	p.users = slices.DeleteFunc(p.users, func(o *copying) bool { return o == c })
	if len(p.users) > 0 {
		return nil
	}
	p.releaseName()
	if p.attr.Length >= smallest && !p.isStream() {
		return errors.Join(p.file.Keep(), p.dir.Close())
	}
	p.t.used -= int64(p.attr.Length)
	p.t.files--
	return errors.Join(p.file.Drop(), p.dir.Close())
}

// reading is a file that one connection reads.
type reading struct {
	file *os.File
	attr Attr
}

// read opens a file for a client that reads it.
func (t *Tree) read(name string) (*reading, error) {
	f, err := hostfile.Beneath(t.root, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	a, err := fstat(f)
	if err == nil && a.Kind != KindFile {
		err = refuse(CodeFile, "%s is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &reading{file: f, attr: a}, nil
}

// unchanged fails if the file was written in the meantime: the bytes read might be a mixture.
func (r *reading) unchanged() error {
	now, err := fstat(r.file)
	if err == nil && (now.Length != r.attr.Length || now.Modified != r.attr.Modified) {
		err = refuse(CodeFile, "the file was changed while it was read: copy it again")
	}
	return err
}

// leave closes the file.
func (r *reading) leave() error { return r.file.Close() }
