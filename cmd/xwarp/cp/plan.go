package cp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// maxFiles limits the number of files of a run, so that a server with endless directories cannot exhaust memory.
const maxFiles = 1 << 22

// plan finds the files to copy and creates the directories.
type plan struct {
	cfg    *Config
	client *transfer.Client
	queue  *queue
	names  int
	linked int               // files with several hard links
	from   map[string]string // source of each planned file, by destination; nil with one source
}

// errDirectory is returned for a directory without -r.
var errDirectory = errors.New("is a directory: use -r to copy directories")

// checkLimits counts a file and enforces maxFiles.
func (p *plan) checkLimits() error {
	if p.names++; p.names > maxFiles {
		return fmt.Errorf("more than %d files: copy them in parts", maxFiles)
	}
	return nil
}

// stat returns the attributes of a local file. With follow, it follows a symbolic link.
func stat(name string, follow bool) (transfer.Attr, error) {
	flags := 0
	if !follow {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, name, &st, flags); err != nil {
		return transfer.Attr{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return transfer.AttrOf(&st), nil
}

// up plans a copy to the server. It follows sources that are symbolic links.
func (p *plan) up(ctx context.Context, sources []string, spelled string) error {
	dst := clean(spelled)
	there, err := p.client.Stat(ctx, dst)
	if err != nil {
		return err
	}
	if sources[0] == Stream {
		if namesDir(spelled) {
			there.Kind = transfer.KindDir
		}
		return p.upStream(ctx, dst, there)
	}
	if there.Kind == transfer.KindNone && namesDir(spelled) {
		if err := p.client.Mkdir(ctx, dst, 0o777); err != nil {
			return err
		}
		there.Kind = transfer.KindDir
	}
	into := there.Kind == transfer.KindDir
	if !into && (len(sources) > 1 || namesDir(spelled)) {
		return fmt.Errorf("%s is not a directory on the server", dst)
	}
	var known listing
	if into && len(sources) > 1 {
		if known, err = p.listFiles(ctx, dst); err != nil {
			return err
		}
	}
	for _, src := range sources {
		a, err := stat(src, true)
		if err != nil {
			return err
		}
		to := dst
		if into {
			name, err := filepath.Abs(src)
			if err != nil {
				return err
			}
			to = path.Join(dst, filepath.Base(name))
		}
		switch {
		case a.Kind == transfer.KindDir && !p.cfg.Recursive:
			return fmt.Errorf("%s: %w", src, errDirectory)
		case a.Kind == transfer.KindDir:
			if there, err = p.client.Stat(ctx, to); err == nil {
				err = p.upTree(ctx, src, to, a, there.Kind == transfer.KindDir, nil)
			}
		case a.Kind == transfer.KindFile:
			err = p.add(src, to, a, known.find(path.Base(to)))
		default:
			err = fmt.Errorf("%s is not a regular file", src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// namesDir reports whether an argument is spelled as a directory.
func namesDir(arg string) bool {
	return strings.HasSuffix(arg, "/") || strings.HasSuffix(arg, "/.")
}

// clean returns the path in the server's directory of a remote argument.
func clean(name string) string { return path.Clean("./" + name) }

// listing holds the entries of a directory on the server. It is nil if the directory was not listed.
type listing map[string]transfer.Attr

// find returns the attributes of a name, or nil if the directory was not listed.
func (l listing) find(name string) *transfer.Attr {
	if l == nil {
		return nil
	}
	a := l[name]
	return &a
}

func (p *plan) listFiles(ctx context.Context, dir string) (listing, error) {
	list, err := p.client.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	l := make(listing, len(list))
	for _, e := range list {
		l[e.Name] = e.Attr
	}
	return l, nil
}

// upTree plans the copy of a directory, and creates it unless it exists. above are the nodes of the directories above.
func (p *plan) upTree(ctx context.Context, src, dst string, a transfer.Attr, exists bool,
	above []uint64) (err error) {
	above = append(above, a.Node)
	known := listing{}
	if exists {
		known, err = p.listFiles(ctx, dst)
	} else {
		err = p.client.Mkdir(ctx, dst, a.Mode)
	}
	if err != nil {
		return p.skip(src, err)
	}
	p.directory(src, dst, a)
	names, err := os.ReadDir(src)
	if err != nil {
		return p.skip(src, err)
	}
	for _, e := range names {
		from, to := filepath.Join(src, e.Name()), path.Join(dst, e.Name())
		if err := p.checkLimits(); err != nil {
			return err
		}
		switch a, err := stat(from, e.Type()&fs.ModeSymlink != 0); {
		case errors.Is(err, fs.ErrNotExist):
			if e.Type()&fs.ModeSymlink != 0 {
				p.leaveOut(from, "symbolic link to nothing")
			}
		case err != nil:
			p.skip(from, err)
		case len(to) > transfer.MaxPath:
			p.skip(from, errLongPath)
		case staging.Leftover(e.Name()):
			p.leaveOut(from, "name of an unfinished copy")
		case a.Kind == transfer.KindDir && slices.Contains(above, a.Node):
			p.leaveOut(from, "symbolic link to a directory above it")
		case a.Kind == transfer.KindDir:
			exists := known[e.Name()].Kind == transfer.KindDir
			if err := p.upTree(ctx, from, to, a, exists, above); err != nil {
				return err
			}
		case a.Kind == transfer.KindFile:
			if err := p.add(from, to, a, known.find(e.Name())); err != nil {
				return err
			}
		default:
			p.leaveOut(from, "device, socket or pipe")
		}
	}
	return nil
}

// errLongPath is returned for a path that does not fit into a message.
var errLongPath = fmt.Errorf("path on the server exceeds %d bytes", transfer.MaxPath)

// skip counts a file or directory that cannot be copied, and returns nil so that the run continues. If the connection
// ended, it returns err.
func (p *plan) skip(name string, err error) error {
	if p.client.Over() {
		return err
	}
	p.queue.result.Failed++
	p.cfg.Note(fmt.Sprintf("%s: %v", name, err))
	return nil
}

// leaveOut counts a name that is not copied as skipped.
func (p *plan) leaveOut(name, why string) {
	p.queue.result.LeftOut++
	p.cfg.Note(fmt.Sprintf("%s: skipped (%s)", name, why))
}

// directory queues setting the attributes of a directory, for the end of the run.
func (p *plan) directory(src, dst string, a transfer.Attr) {
	p.queue.dirs = append(p.queue.dirs, directory{dst, a})
	p.noteMode(src, a)
}

// add queues a file, unless an earlier source has the same destination.
func (p *plan) add(src, dst string, a transfer.Attr, known *transfer.Attr) error {
	if first, twice := p.from[dst]; twice && first == src {
		p.cfg.Note(src + ": named more than once")
		return nil
	} else if twice {
		return p.skip(src, fmt.Errorf("will not overwrite just-created %s, which is %s", dst,
			first))
	}
	if p.from != nil {
		p.from[dst] = src
	}
	p.noteMode(src, a)
	if a.Flags&transfer.FlagLinked != 0 {
		p.linked++
	}
	j := &job{local: src, remote: dst, attr: a, known: known, up: p.queue.up,
		session: rand.Uint64()}
	if !p.queue.up {
		j.local, j.remote = dst, src
	}
	p.queue.add(j)
	return nil
}

// noteMode reports mode bits that are not copied.
func (p *plan) noteMode(src string, a transfer.Attr) {
	if lost := a.Mode &^ 0o777; lost != 0 {
		p.cfg.Note(fmt.Sprintf("%s: setuid, setgid and sticky bits are not copied (%#o)",
			src, lost))
	}
}

// noteLinks reports the number of hard links copied as separate files.
func (p *plan) noteLinks() {
	if p.linked > 0 {
		p.cfg.Note(fmt.Sprintf("%d hard links were copied as separate files",
			p.linked))
	}
}

// down plans a copy from the server.
func (p *plan) down(ctx context.Context, sources []string, dst string) error {
	if dst == Stream {
		return p.downStream(ctx, clean(sources[0]))
	}
	st, err := os.Stat(dst)
	if errors.Is(err, fs.ErrNotExist) && namesDir(dst) {
		if err = os.Mkdir(dst, 0o777); err == nil {
			st, err = os.Stat(dst)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	into := err == nil && st.IsDir()
	if len(sources) > 1 && !into {
		return fmt.Errorf("%s is not a directory, but there are several sources", dst)
	}
	for _, spelled := range sources {
		src := clean(spelled)
		a, err := p.client.Stat(ctx, src)
		if err != nil {
			return err
		}
		to := dst
		if into && src != "." {
			to = filepath.Join(dst, path.Base(src))
		}
		switch {
		case a.Kind == transfer.KindNone:
			return noSuchFile(src)
		case a.Kind == transfer.KindDir && !p.cfg.Recursive:
			return fmt.Errorf("%s: %w", src, errDirectory)
		case a.Kind == transfer.KindDir:
			err = p.downTree(ctx, src, to, a, nil)
		case namesDir(spelled):
			err = fmt.Errorf("%s is not a directory on the server", src)
		case a.Kind == transfer.KindFile:
			err = p.add(src, to, a, nil)
		default:
			err = fmt.Errorf("%s is not a regular file", src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// downTree plans the copy of a directory, and creates it unless it exists. above are the nodes of the directories
// above.
func (p *plan) downTree(ctx context.Context, src, dst string, a transfer.Attr,
	above []uint64) error {
	above = append(above, a.Node)
	var known *transfer.Attr
	switch err := os.Mkdir(dst, a.Perm()|0o700); {
	case err == nil:
		known = &transfer.Attr{} // a new directory is empty
	case !errors.Is(err, fs.ErrExist):
		return p.skip(src, err)
	}
	list, err := p.client.List(ctx, src)
	if err != nil {
		return p.skip(src, err)
	}
	p.directory(src, dst, a)
	for _, e := range list { // transfer's parseListing has checked the names
		if err := p.checkLimits(); err != nil {
			return err
		}
		from, to := path.Join(src, e.Name), filepath.Join(dst, e.Name)
		link := e.Attr.Flags&transfer.FlagLink != 0
		e.Attr.Flags &^= transfer.FlagLink
		switch {
		case len(from) > transfer.MaxPath:
			p.skip(from, errLongPath)
		case staging.Leftover(e.Name):
			p.leaveOut(from, "name of an unfinished copy")
		case e.Attr.Kind == transfer.KindDir && slices.Contains(above, e.Attr.Node):
			p.leaveOut(from, "symbolic link to a directory above it")
		case e.Attr.Kind == transfer.KindDir:
			if err := p.downTree(ctx, from, to, e.Attr, above); err != nil {
				return err
			}
		case e.Attr.Kind == transfer.KindFile:
			if err := p.add(from, to, e.Attr, known); err != nil {
				return err
			}
		case link:
			p.leaveOut(from, "symbolic link to nothing, or out of the exported directory")
		default:
			p.leaveOut(from, "device, socket or pipe")
		}
	}
	return nil
}

// endDirs sets the permissions and times of directories, children before parents.
func (p *plan) endDirs(ctx context.Context) error {
	for _, d := range slices.Backward(p.queue.dirs) {
		var err error
		if p.queue.up {
			err = p.client.SetAttr(ctx, d.path, d.attr)
		} else {
			err = setAttr(d.path, &d.attr)
		}
		if err != nil {
			if err = p.skip(d.path, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAttr sets the permissions and the modification time of a local directory.
func setAttr(name string, a *transfer.Attr) error {
	when, err := unix.TimeToTimespec(a.Modified.Time())
	if err == nil {
		err = os.Chmod(name, a.Perm())
	}
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{when, when}, 0)
	}
	if err != nil {
		return fmt.Errorf("permissions and time: %w", err)
	}
	return nil
}
