// Package cp copies files and directories to and from a server with a directory, over several connections.
//
// Each file is written beside the one that it replaces and gets its name when it is whole, at either end.
// A copy that is cut off stays under another name, and the next copy of the file resumes it: pieces whose SHA-256
// is right already are not sent again, wherever they came from.
package cp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"xwarp/engine/transfer"
)

// Config says how to copy.
type Config struct {
	Dial        func(context.Context) (*transfer.Client, error)
	Connections int  // at a time; 0 means 1
	Recursive   bool // directories too
	// Checksum has a file count as copied when it has the same SHA-256, instead of the same length and time.
	Checksum bool
	// Progress is called with the bytes that were copied, or were there already; Note with files that were not copied,
	// and the reason. Both may be called by several goroutines at once.
	Progress func(done, total int64)
	Note     func(text string)
}

// Result counts the files by their outcome.
type Result struct {
	Files     int   // copied
	Unchanged int   // were there
	Failed    int   // could not be copied
	LeftOut   int   // links, devices, sockets and pipes, which are not copied
	Bytes     int64 // that were sent
	Kept      int64 // bytes of copied files that were there from an earlier try
}

// ErrFailed is returned when some files could not be copied; each was noted.
var ErrFailed = errors.New("some files could not be copied")

// ErrLeftOut is returned when everything else was copied; each name that was left out was noted.
var ErrLeftOut = errors.New("symbolic links, devices, sockets and pipes were left out")

// Up copies local files and directories to dst, a path in the server's directory.
func Up(ctx context.Context, cfg Config, sources []string, dst string) (Result, error) {
	return run(ctx, cfg, sources, dst, (*plan).up, true)
}

// Down copies files and directories, paths in the server's directory, to dst, a local path.
func Down(ctx context.Context, cfg Config, sources []string, dst string) (Result, error) {
	return run(ctx, cfg, sources, dst, (*plan).down, false)
}

func run(ctx context.Context, cfg Config, sources []string, dst string,
	find func(*plan, context.Context, []string, string) error, up bool) (r Result, err error) {
	c, err := cfg.Dial(ctx)
	if err != nil {
		return r, err
	}
	q := &queue{cfg: cfg, up: up}
	p := &plan{cfg: &cfg, client: c, queue: q}
	err = find(p, ctx, sources, dst)
	if err == nil {
		err = q.copyAll(ctx, c)
	}
	if err == nil {
		err = p.endDirs(ctx)
		p.noteLinks()
	}
	err = errors.Join(err, c.Close())
	switch {
	case err != nil:
		return q.result, err
	case q.result.Failed > 0:
		return q.result, ErrFailed
	case q.result.LeftOut > 0:
		return q.result, ErrLeftOut
	}
	return q.result, nil
}

// copyAll copies the queued files over c, and over further connections that it makes and closes.
func (q *queue) copyAll(ctx context.Context, c *transfer.Client) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	work := func(c *transfer.Client) {
		if err := (&worker{queue: q, c: c}).copyLoop(ctx); err != nil {
			cancel(err) // one connection is as bad as the others
		}
	}
	most := min(q.cfg.Connections, q.pieces())
	workers.Go(func() { work(c) })
	for range most - 1 {
		if !q.more() {
			break
		}
		c, err := q.cfg.Dial(ctx)
		if err != nil {
			q.cfg.Note(fmt.Sprintf("one connection less: %v", err))
			break
		}
		workers.Go(func() {
			work(c)
			if err := c.Close(); err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
