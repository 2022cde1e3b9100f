// Package cp copies files and directories to and from the exported directory of a server, over several connections.
//
// At either end a file is written under a temporary name beside its destination, and renamed when it is complete. An
// interrupted copy keeps its temporary name. The next copy of the file resumes it, and does not send pieces whose
// SHA-256 already matches.
package cp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"xwarp/engine/transfer"
)

// Config configures a copy.
type Config struct {
	// Dial opens a connection to the server.
	Dial        func(context.Context) (*transfer.Client, error)
	Connections int  // number of parallel connections; 0 means 1
	Recursive   bool // copy directories
	// Checksum compares files by SHA-256 instead of length and modification time.
	Checksum bool
	// Stdin is read if the source of Up is Stream. Stdout is written if the destination of Down is Stream.
	Stdin  io.Reader
	Stdout io.Writer
	// Progress is called with the number of bytes copied or already present; total is -1 if unknown. Note is called
	// with a line of text for each file that is not copied unless the connection ended, for attributes that are lost,
	// and if there are fewer connections. Both may be called from several goroutines.
	Progress func(done, total int64)
	Note     func(text string)
}

// Result counts the files by their outcome.
type Result struct {
	Files     int   `json:"files" doc:"files copied"`
	Unchanged int   `json:"unchanged" doc:"files already present and unchanged"`
	Failed    int   `json:"failed" doc:"files that could not be copied (see notes)"`
	LeftOut   int   `json:"left_out" doc:"names skipped: devices, sockets, pipes, links without a target, unfinished copies (see notes)"`
	Bytes     int64 `json:"bytes" doc:"bytes sent or received"`
	Kept      int64 `json:"kept" doc:"bytes of copied files already present from an interrupted copy"`
}

// ErrFailed is returned if some files could not be copied. Note was called for each.
var ErrFailed = errors.New("some files could not be copied")

// ErrLeftOut is returned if files were skipped and all others copied. Note was called for each.
var ErrLeftOut = errors.New("some names were skipped")

// Stream is the name of Config's Stdin as the only source of Up, and of Stdout as the destination of Down.
const Stream = "-"

// Up copies local files and directories to dst, a path in the server's directory.
func Up(ctx context.Context, cfg Config, sources []string, dst string) (Result, error) {
	return run(ctx, cfg, sources, dst, true)
}

// Down copies files and directories, paths in the server's directory, to dst, a local path.
func Down(ctx context.Context, cfg Config, sources []string, dst string) (Result, error) {
	return run(ctx, cfg, sources, dst, false)
}

func run(ctx context.Context, cfg Config, sources []string, dst string, up bool) (r Result,
	err error) {
	c, err := cfg.Dial(ctx)
	if err != nil {
		return r, err
	}
	q := &queue{cfg: cfg, up: up}
	p := &plan{cfg: &cfg, client: c, source: c, queue: q}
	p.target = files{p.skip}
	if up {
		p.source, p.target = p.target, c
	}
	if len(sources) > 1 {
		p.from = map[string]string{}
	}
	err = p.planSources(ctx, sources, dst)
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

// copyAll copies the queued files over c and over further connections, which it opens and closes.
func (q *queue) copyAll(ctx context.Context, c *transfer.Client) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	work := func(c *transfer.Client) {
		if err := (&worker{queue: q, c: c}).copyLoop(ctx); err != nil {
			cancel(err) // a failed connection ends the whole run
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
			q.cfg.Note(fmt.Sprintf("using fewer connections: %v", err))
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
