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

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// maxFiles is the most names that one run takes: a server whose directories have no end would fill the memory.
const maxFiles = 1 << 22

// plan finds out what is to be copied, and makes the directories.
type plan struct {
	cfg    *Config
	client *transfer.Client
	queue  *queue
	names  int
}

// errDirectory asks for -r.
var errDirectory = errors.New("it is a directory, which only a recursive copy takes (-r)")

// count bounds what one run takes.
func (p *plan) count() error {
	if p.names++; p.names > maxFiles {
		return fmt.Errorf("more than %d files: copy parts of them", maxFiles)
	}
	return nil
}

// attrOf is what the server shall know of a local file.
func attrOf(st fs.FileInfo) transfer.Attr {
	a := transfer.Attr{
		Kind: transfer.KindFile, Mode: uint16(st.Mode().Perm()), Length: uint64(st.Size()),
		Modified: st.ModTime().UnixNano(),
	}
	if st.IsDir() {
		a.Kind, a.Length = transfer.KindDir, 0
	}
	return a
}

// up lists local sources, and makes their directories at the server.
func (p *plan) up(ctx context.Context, sources []string, dst string) error {
	dst = path.Clean(dst)
	there, err := p.client.Stat(ctx, dst)
	if err != nil {
		return err
	}
	into := there.Kind == transfer.KindDir
	if len(sources) > 1 && !into {
		return fmt.Errorf("%s is no directory of the server, and there are %d sources", dst,
			len(sources))
	}
	for _, src := range sources {
		st, err := os.Stat(src)
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
		case st.IsDir() && !p.cfg.Recursive:
			return fmt.Errorf("%s: %w", src, errDirectory)
		case st.IsDir():
			err = p.upTree(ctx, src, to)
		case st.Mode().IsRegular():
			p.add(src, to, attrOf(st), true)
		default:
			err = fmt.Errorf("%s is no regular file: xwarp put - takes what a pipe has", src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) upTree(ctx context.Context, src, dst string) error {
	return filepath.WalkDir(src, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return err
		}
		to := path.Join(dst, filepath.ToSlash(rel))
		st, err := e.Info()
		if name == src {
			st, err = os.Stat(src) // a link to a directory is followed where it was named
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone meanwhile
		case err != nil:
			return err
		case st.IsDir():
			return errors.Join(p.count(), p.client.Mkdir(ctx, to, attrOf(st).Mode))
		case staging.Leftover(e.Name()):
			return nil
		case !st.Mode().IsRegular():
			p.cfg.Note(name + " is no regular file, and is left out")
			return nil
		}
		p.add(name, to, attrOf(st), true)
		return p.count()
	})
}

func (p *plan) add(local, remote string, a transfer.Attr, up bool) {
	p.queue.add(&job{local: local, remote: remote, attr: a, up: up, session: rand.Uint64()})
}

// down lists the server's sources, and makes their directories here.
func (p *plan) down(ctx context.Context, sources []string, dst string) error {
	st, err := os.Stat(dst)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	into := err == nil && st.IsDir()
	if len(sources) > 1 && !into {
		return fmt.Errorf("%s is no directory, and there are %d sources", dst, len(sources))
	}
	for _, src := range sources {
		src = path.Clean(src)
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
			return fmt.Errorf("%s: the server has no such file", src)
		case a.Kind == transfer.KindDir && !p.cfg.Recursive:
			return fmt.Errorf("%s: %w", src, errDirectory)
		case a.Kind == transfer.KindDir:
			err = p.downTree(ctx, src, to, a)
		case a.Kind == transfer.KindFile:
			p.add(to, src, a, false)
		default:
			err = fmt.Errorf("%s is no regular file", src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) downTree(ctx context.Context, src, dst string, a transfer.Attr) error {
	err := os.Mkdir(dst, fs.FileMode(a.Mode&0o777|0o700))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	list, err := p.client.List(ctx, src)
	if err != nil {
		return err
	}
	for _, e := range list { // parseListing saw to it that the names are names
		if err := p.count(); err != nil {
			return err
		}
		from, to := path.Join(src, e.Name), filepath.Join(dst, e.Name)
		switch {
		case len(from) > transfer.MaxPath:
			return fmt.Errorf("%.100s…: a path may have %d octets", from, transfer.MaxPath)
		case e.Attr.Kind == transfer.KindDir:
			if err := p.downTree(ctx, from, to, e.Attr); err != nil {
				return err
			}
		case e.Attr.Kind == transfer.KindFile && !staging.Leftover(e.Name):
			p.add(to, from, e.Attr, false)
		default:
			p.cfg.Note(from + " is no regular file, and is left out")
		}
	}
	return nil
}
