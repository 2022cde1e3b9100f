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
	source side
	target side
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

// side is one end of a copy: the directory of the server, or local files.
type side interface {
	// Stat returns the attributes of a path, with KindNone if it does not exist. It follows symbolic links.
	Stat(ctx context.Context, path string) (transfer.Attr, error)
	// List returns the entries of a directory. FlagLink marks symbolic links: all on the server, and local ones to
	// nothing. Those that cannot be followed are KindOther.
	List(ctx context.Context, path string) ([]transfer.Entry, error)
	Mkdir(ctx context.Context, path string, mode uint16) error
	SetAttr(ctx context.Context, path string, a transfer.Attr) error
}

// files are local files. skip is called for entries of a directory whose attributes cannot be read.
type files struct {
	skip func(name string, err error) error
}

// Stat implements side. A symbolic link to nothing has KindNone.
func (files) Stat(_ context.Context, name string) (transfer.Attr, error) {
	a, err := stat(name, true)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return a, err
}

// List implements side. It omits entries that were removed in the meantime, and those for which it calls skip.
func (f files) List(_ context.Context, dir string) (list []transfer.Entry, err error) {
	names, err := os.ReadDir(dir)
	for _, e := range names {
		name, link := path.Join(dir, e.Name()), e.Type()&fs.ModeSymlink != 0
		switch a, err := stat(name, link); {
		case errors.Is(err, fs.ErrNotExist) && !link: // removed in the meantime
		case errors.Is(err, fs.ErrNotExist):
			a = transfer.Attr{Kind: transfer.KindOther, Flags: transfer.FlagLink}
			fallthrough
		case err == nil:
			list = append(list, transfer.Entry{Name: e.Name(), Attr: a})
		default:
			f.skip(name, err)
		}
	}
	return list, err
}

// Mkdir implements side. The owner gets all permissions, so that files can be created in the directory before SetAttr.
func (files) Mkdir(_ context.Context, name string, mode uint16) error {
	return os.Mkdir(name, fs.FileMode(mode&0o777)|0o700)
}

// SetAttr implements side. It sets the permissions and the modification time.
func (files) SetAttr(_ context.Context, name string, a transfer.Attr) error {
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

// planSources plans the copy of sources to the destination.
func (p *plan) planSources(ctx context.Context, sources []string, destination string) error {
	up, dst, isDir := p.queue.up, destination, namesDir(destination)
	if up {
		dst = clean(dst)
	} else if dst == Stream {
		return p.downStream(ctx, clean(sources[0]))
	}
	there, err := p.target.Stat(ctx, dst)
	if err != nil {
		return err
	}
	if up && sources[0] == Stream {
		if isDir {
			there.Kind = transfer.KindDir
		}
		return p.upStream(ctx, dst, there)
	}
	if there.Kind == transfer.KindNone && isDir {
		if err := p.target.Mkdir(ctx, dst, 0o777); err != nil {
			return err
		}
		there.Kind = transfer.KindDir
	}
	into, known := there.Kind == transfer.KindDir, listing(nil)
	switch several := len(sources) > 1; {
	case into && several && up:
		if known, err = p.listFiles(ctx, dst); err != nil {
			return err
		}
	case !into && up && (several || isDir):
		return fmt.Errorf("%s is not a directory on the server", dst)
	case !into && several:
		return fmt.Errorf("%s is not a directory, but there are several sources", dst)
	}
	for _, src := range sources {
		to := dst
		if into {
			if to, err = p.inside(dst, src); err != nil {
				return err
			}
		}
		if err := p.planSource(ctx, src, to, known); err != nil {
			return err
		}
	}
	return nil
}

// inside returns the path of a source in the directory dst.
func (p *plan) inside(dst, src string) (string, error) {
	if !p.queue.up {
		if src = clean(src); src == "." {
			return dst, nil
		}
		return path.Join(dst, path.Base(src)), nil
	}
	name, err := filepath.Abs(src)
	return path.Join(dst, path.Base(name)), err
}

// planSource plans the copy of one source.
func (p *plan) planSource(ctx context.Context, spelled, dst string, known listing) error {
	src, up := spelled, p.queue.up
	if !up {
		src = clean(src)
	}
	a, err := p.source.Stat(ctx, src)
	switch {
	case err != nil:
		return err
	case a.Kind == transfer.KindNone && up:
		return &fs.PathError{Op: "stat", Path: src, Err: unix.ENOENT}
	case a.Kind == transfer.KindNone:
		return noSuchFile(src)
	case a.Kind == transfer.KindDir && !p.cfg.Recursive:
		return fmt.Errorf("%s: %w", src, errDirectory)
	case a.Kind == transfer.KindDir && up:
		there, err := p.target.Stat(ctx, dst)
		if err != nil {
			return err
		}
		return p.planTree(ctx, src, dst, a, there.Kind == transfer.KindDir, nil)
	case a.Kind == transfer.KindDir:
		return p.planTree(ctx, src, dst, a, false, nil)
	case !up && namesDir(spelled):
		return fmt.Errorf("%s is not a directory on the server", src)
	case a.Kind == transfer.KindFile:
		return p.add(src, dst, a, known.find(path.Base(dst)))
	}
	return fmt.Errorf("%s is not a regular file", src)
}

// namesDir reports whether an argument is spelled as a directory.
func namesDir(arg string) bool {
	return strings.HasSuffix(arg, "/") || strings.HasSuffix(arg, "/.")
}

// clean returns the path in the server's directory of a remote argument.
func clean(name string) string { return path.Clean("./" + name) }

// listing holds the entries of a directory on the server. It is nil if the directory was not listed.
type listing map[string]transfer.Attr

// find returns the attributes of a name, or nil if the directory was not listed. A name that does not exist has
// KindNone.
func (l listing) find(name string) *transfer.Attr {
	if l == nil {
		return nil
	}
	a := l[name]
	return &a
}

func (p *plan) listFiles(ctx context.Context, dir string) (listing, error) {
	list, err := p.target.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	l := make(listing, len(list))
	for _, e := range list {
		l[e.Name] = e.Attr
	}
	return l, nil
}

// planTree plans the copy of a directory, and creates it unless it exists. above are the nodes of the directories above
// it.
func (p *plan) planTree(ctx context.Context, src, dst string, a transfer.Attr, exists bool,
	above []uint64) error {
	above = append(above, a.Node)
	known, err := p.makeDir(ctx, dst, a, exists)
	if err != nil {
		return p.skip(src, err)
	}
	p.queue.dirs = append(p.queue.dirs, directory{dst, a}) // endDirs sets its attributes
	p.noteMode(src, a)
	list, err := p.source.List(ctx, src)
	if err != nil {
		return p.skip(src, err)
	}
	for _, e := range list { // transfer's parseListing has checked the names of the server
		if err := p.checkLimits(); err != nil {
			return err
		}
		from, to := path.Join(src, e.Name), path.Join(dst, e.Name)
		remote, link := from, "symbolic link to nothing, or out of the exported directory"
		if p.queue.up {
			remote, link = to, "symbolic link to nothing"
		}
		isLink := e.Attr.Flags&transfer.FlagLink != 0
		e.Attr.Flags &^= transfer.FlagLink
		switch {
		case len(remote) > transfer.MaxPath:
			p.skip(from, errLongPath)
		case staging.Leftover(e.Name):
			p.leaveOut(from, "name of an unfinished copy")
		case e.Attr.Kind == transfer.KindDir && slices.Contains(above, e.Attr.Node):
			p.leaveOut(from, "symbolic link to a directory above it")
		case e.Attr.Kind == transfer.KindDir:
			exists := known[e.Name].Kind == transfer.KindDir
			err = p.planTree(ctx, from, to, e.Attr, exists, above)
		case e.Attr.Kind == transfer.KindFile:
			err = p.add(from, to, e.Attr, known.find(e.Name))
		case isLink:
			p.leaveOut(from, link)
		default:
			p.leaveOut(from, "device, socket or pipe")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates a directory at the destination, and returns its entries, or nil if they are unknown. exists is set
// for a directory that is known to exist; a local one may exist although it is not set.
func (p *plan) makeDir(ctx context.Context, dst string, a transfer.Attr, exists bool) (listing,
	error) {
	if exists {
		return p.listFiles(ctx, dst)
	}
	err := p.target.Mkdir(ctx, dst, a.Mode)
	if !p.queue.up && errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	return listing{}, err
}

// errLongPath is returned for a path that does not fit into a message.
var errLongPath = fmt.Errorf("path on the server exceeds %d bytes", transfer.MaxPath)

// skip counts a file or directory that cannot be copied as failed, and returns nil so that the run continues. If the
// connection ended, it returns err.
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

// endDirs sets the permissions and times of directories, children before parents.
func (p *plan) endDirs(ctx context.Context) error {
	for _, d := range slices.Backward(p.queue.dirs) {
		if err := p.target.SetAttr(ctx, d.path, d.attr); err != nil {
			if err = p.skip(d.path, err); err != nil {
				return err
			}
		}
	}
	return nil
}
