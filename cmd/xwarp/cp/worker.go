package cp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// worker copies files over one connection.
type worker struct {
	*queue
	c     *transfer.Client
	batch staging.Batch // for fetched packs
}

// copyLoop copies until the queue is empty, and then waits until packs are on disk. It returns errors of the connection
// and of that wait; errors of files are noted.
func (w *worker) copyLoop(ctx context.Context) error {
	defer w.batch.Close()
	packs := false
	for ctx.Err() == nil {
		var err error
		if pack := w.takePack(); pack != nil {
			packs = true
			err = w.copyPack(ctx, pack)
		} else if j, first := w.takeJob(); j != nil {
			if err = w.copy(ctx, j, first); err != nil {
				w.failJob(j, err)
			}
		} else {
			return w.sync(ctx, packs)
		}
		if w.c.Over() {
			return err
		}
	}
	return nil
}

// sync waits until the files of this worker's packs are on disk.
func (w *worker) sync(ctx context.Context, packs bool) error {
	if !packs {
		return nil
	}
	if w.up {
		return w.c.Sync(ctx)
	}
	return w.batch.Sync()
}

// copy copies this worker's share of a file. The first worker opens the local file, and lets others join.
func (w *worker) copy(ctx context.Context, j *job, first bool) error {
	if first {
		upToDate, err := w.isUpToDate(ctx, j)
		if err == nil && !upToDate {
			err = j.openLocal()
		}
		if err != nil || upToDate {
			w.leave(j)
			if upToDate {
				w.unchanged(j)
			}
			return err
		}
	}
	f, err := w.openRemote(ctx, j)
	j.opening.Done()
	if err == nil {
		if first {
			j.resumed = j.resumed || f.Resumed()
			var extents []transfer.Extent
			if extents, err = j.extents(ctx, f); err == nil {
				w.share(j, extents)
			}
		}
		if err == nil {
			err = w.pieces(ctx, j, f)
		}
	}
	if err != nil {
		w.failJob(j, err)
	}
	return errors.Join(err, w.close(ctx, j, f))
}

// openRemote opens the server's file.
func (w *worker) openRemote(ctx context.Context, j *job) (*transfer.RemoteFile, error) {
	if j.up {
		return w.c.Store(ctx, j.remote, j.attr, j.session, j.in)
	}
	f, err := w.c.Fetch(ctx, j.remote, j.out.File)
	if err != nil {
		return nil, err
	}
	if a := f.Attr(); a.Length != j.attr.Length || a.Modified != j.attr.Modified {
		return nil, errors.Join(errChanged, f.Close(ctx, false))
	}
	return f, nil
}

// extents returns the parts of a file to move: those with data, or all of it.
func (j *job) extents(ctx context.Context, f *transfer.RemoteFile) ([]transfer.Extent, error) {
	switch {
	case j.attr.Flags&transfer.FlagSparse == 0, j.resumed: // a resumed file may have data where the source has holes
		return j.remaining, nil
	case j.up:
		return transfer.Extents(j.in, int64(j.attr.Length))
	}
	return f.Extents(ctx)
}

// pieces moves the remaining pieces of the file.
func (w *worker) pieces(ctx context.Context, j *job, f *transfer.RemoteFile) error {
	for {
		off, n := w.piece(j)
		if n == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		same := false
		var err error
		if j.resumed {
			same, err = f.Same(ctx, off, n)
		}
		if err == nil && !same {
			err = f.Move(ctx, off, n)
		}
		if err != nil {
			return err
		}
		w.addProgress(n, same)
	}
}

// close ends this worker's part of the file. The last worker renames the file after the others have closed it. The
// others close it only while the last one has it open, since the server may drop a file that is not open. f is nil if
// it could not be opened.
func (w *worker) close(ctx context.Context, j *job, f *transfer.RemoteFile) error {
	err := j.unchanged()
	if err != nil {
		w.failJob(j, err)
	}
	last := w.leave(j)
	if last {
		j.closing.Wait()
	} else {
		defer j.closing.Done()
		j.opening.Wait()
	}
	if f != nil && !w.c.Over() {
		if err = f.Close(ctx, last && w.allPartsSucceeded(j)); err != nil {
			w.failJob(j, err)
		}
	}
	if !last {
		return err
	}
	well := w.allPartsSucceeded(j)
	err = errors.Join(err, j.finishLocal(well))
	if err == nil && well {
		w.copied()
	}
	return err
}

// partialMode is the mode of an incomplete local file.
const partialMode = 0o600

// openLocal opens the local file.
func (j *job) openLocal() (err error) {
	if j.up {
		j.in, err = os.Open(j.local)
		return err
	}
	if j.dir, err = staging.OpenDir(filepath.Dir(j.local)); err != nil {
		return err
	}
	if j.out, err = j.dir.Resume(filepath.Base(j.local), partialMode); err != nil {
		return errors.Join(err, j.dir.Close())
	}
	st, err := j.out.Stat()
	length := int64(j.attr.Length)
	if err == nil {
		j.resumed = st.Size() > 0
		err = j.out.Truncate(min(st.Size(), length))
	}
	switch {
	case err != nil:
	case j.attr.Flags&transfer.FlagSparse != 0:
		err = j.out.Truncate(length)
	default:
		err = j.out.Allocate(length)
	}
	if err != nil {
		return errors.Join(err, j.out.Chmod(partialMode), j.leave(), j.dir.Close())
	}
	return nil
}

// unchanged fails if a local file changed since it was listed: the data sent may be inconsistent.
func (j *job) unchanged() error {
	if !j.up {
		return nil
	}
	return sameAs(int(j.in.Fd()), &j.attr)
}

// sameAs fails if the length or modification time of a file differs from a.
func sameAs(fd int, a *transfer.Attr) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && (uint64(st.Size) != a.Length ||
		transfer.AttrOf(&st).Modified != a.Modified) {
		err = errors.New("file changed during the copy: copy it again")
	}
	return err
}

// finishLocal closes the local file, and renames it if it is complete.
func (j *job) finishLocal(succeeded bool) error {
	if j.up {
		return j.in.Close()
	}
	if !succeeded {
		return errors.Join(j.leave(), j.dir.Close())
	}
	err := j.out.Chmod(fs.FileMode(j.attr.Mode & 0o777))
	if err == nil {
		err = staging.SetTime(j.out.File, j.attr.Modified.Time())
	}
	if err == nil {
		err = j.out.Commit()
	}
	if err != nil && !errors.Is(err, staging.ErrUnsure) { // the name is taken, or the disk failed
		return errors.Join(err, j.out.Chmod(partialMode), j.leave(), j.dir.Close())
	}
	return errors.Join(err, j.out.Close(), j.dir.Close())
}

// leave closes an incomplete file. It keeps the file, for a later copy to resume, unless it is short.
func (j *job) leave() error {
	if j.attr.Length < transfer.PieceLen {
		return j.out.Drop()
	}
	return j.out.Keep()
}

// isUpToDate reports whether the destination has the same file: by length and modification time, or by SHA-256.
func (w *worker) isUpToDate(ctx context.Context, j *job) (bool, error) {
	a, err := w.destination(ctx, j)
	switch {
	case err != nil:
		return false, err
	case a.Kind == transfer.KindDir:
		return false, fmt.Errorf("%s is a directory at the destination", j.name())
	case a.Kind != transfer.KindFile || a.Length != j.attr.Length:
		return false, nil
	case w.cfg.Checksum:
		return w.equal(ctx, j)
	}
	return a.Modified == j.attr.Modified, nil
}

// destination returns the attributes of the destination of j, and queries them if unknown.
func (w *worker) destination(ctx context.Context, j *job) (a transfer.Attr, err error) {
	switch {
	case j.known != nil:
		return *j.known, nil
	case j.up:
		a, err = w.c.Stat(ctx, j.remote)
	default:
		a, err = files{}.Stat(ctx, j.local)
	}
	if err == nil {
		j.known = &a
	}
	return a, err
}

// equal compares the SHA-256 of both files, piece by piece.
func (w *worker) equal(ctx context.Context, j *job) (same bool, err error) {
	local, err := os.Open(j.local)
	if err != nil {
		return false, err
	}
	defer local.Close()
	f, err := w.c.Fetch(ctx, j.remote, local)
	if err != nil {
		return false, err
	}
	length := int64(j.attr.Length)
	same = f.Attr().Length == j.attr.Length
	for off := int64(0); same && err == nil && off < length; off += transfer.PieceLen {
		n := min(transfer.PieceLen, length-off)
		same, err = f.Same(ctx, off, n)
	}
	if w.c.Over() {
		return false, err
	}
	return same, errors.Join(err, f.Close(ctx, false))
}
