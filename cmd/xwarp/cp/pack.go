package cp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// copyPack copies small files in one request, except those that are already present.
func (w *worker) copyPack(ctx context.Context, pack []*job) error {
	var todo []*job
	for _, j := range pack {
		switch upToDate, err := w.isUpToDate(ctx, j); {
		case err != nil:
			w.failJob(j, err)
		case upToDate:
			w.unchanged(j)
		default:
			todo = append(todo, j)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	move := w.fetchPack
	if w.up {
		move = w.storePack
	}
	err := move(ctx, todo)
	if err != nil {
		w.failJob(todo[0], err)
	}
	return err
}

// storePack sends files to the server. The server reports which files it could not store, but not why.
func (w *worker) storePack(ctx context.Context, todo []*job) error {
	p := w.c.NewPack()
	var sent []*job
	for _, j := range todo {
		if err := p.Add(j.remote, j.attr, j.read); err != nil {
			w.failJob(j, err)
			continue
		}
		sent = append(sent, j)
	}
	if len(sent) == 0 {
		return nil
	}
	taken, err := w.c.StorePack(ctx, p)
	if err != nil {
		return err
	}
	for i, j := range sent {
		w.finishPacked(j, taken.Has(i))
	}
	return nil
}

// finishPacked counts a file of a pack as copied if it is done. Otherwise it requeues the file, to be copied alone.
func (w *worker) finishPacked(j *job, done bool) {
	if !done {
		w.requeueUnpacked(j)
		return
	}
	w.addProgress(int64(j.attr.Length), false)
	w.copied()
}

// read reads the complete local file into content. It fails if the file changed since it was listed.
func (j *job) read(content []byte) error {
	fd, err := unix.Open(j.local, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: j.local, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Pread(fd, content, 0)
	if err != nil {
		return &fs.PathError{Op: "read", Path: j.local, Err: err}
	}
	if err = sameAs(fd, &j.attr); err == nil && n < len(content) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// fetchPack gets files from the server.
func (w *worker) fetchPack(ctx context.Context, todo []*job) error {
	p := w.c.NewPack()
	for _, j := range todo {
		none := func([]byte) error { return nil }
		if err := p.Add(j.remote, transfer.Attr{Kind: transfer.KindFile}, none); err != nil {
			return err
		}
	}
	files, err := w.c.FetchPack(ctx, p)
	if err != nil {
		return err
	}
	dirs := staging.Dirs{}
	defer dirs.Close()
	var staged []*job
	for i, j := range todo {
		switch err := w.stage(dirs, j, files[i]); {
		case errors.Is(err, errAlone):
			w.requeueUnpacked(j)
		case err != nil:
			w.failJob(j, err)
		default:
			staged = append(staged, j)
		}
	}
	for i, err := range w.batch.Commit() {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			w.failJob(staged[i], err)
			continue
		}
		if err != nil {
			staged[i].known = nil // another process created it in the meantime
		}
		w.finishPacked(staged[i], err == nil)
	}
	return nil
}

// errChanged is returned for a file on the server that changed since it was listed.
var errChanged = errors.New("file changed since it was listed: copy it again")

// errAlone is returned for a file that the server omitted from a pack.
var errAlone = errors.New("not in the pack")

// stage writes a received file under a temporary name. Commit of the worker's batch renames it.
func (w *worker) stage(dirs staging.Dirs, j *job, f *transfer.Packed) error {
	switch {
	case f == nil:
		return errAlone
	case f.Attr.Length != j.attr.Length || f.Attr.Modified != j.attr.Modified:
		return errChanged
	}
	at := filepath.Dir(j.local)
	d, err := dirs.Open(at, func() (*staging.Dir, error) { return staging.OpenDir(at) })
	if err == nil {
		replaces := j.known.Kind != transfer.KindNone
		err = w.batch.Add(d, filepath.Base(j.local), replaces, j.attr.Perm(),
			j.attr.Modified.Time(), f.Content)
	}
	return err
}
