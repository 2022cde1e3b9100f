package cp

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// queue is the files of one run. Several workers take from it.
type queue struct {
	cfg  Config
	up   bool        // to the server
	dirs []directory // parents before children

	mu          sync.Mutex
	waiting     []*job
	small       []*job // of waiting, those that go in packs
	running     []*job
	total       int64 // bytes of all files
	copiedBytes int64 // of these, copied or there
	result      Result
}

// job is one file. The queue's lock guards the fields below it.
type job struct {
	local, remote string
	attr          transfer.Attr
	up            bool
	session       uint64 // of the connections that copy it together

	known *transfer.Attr // of the destination; nil: not looked up
	alone bool           // it cannot be moved in a pack

	open      bool              // others may join
	resumed   bool              // some of it may be there: compare before a piece is moved
	remaining []transfer.Extent // that no worker has taken
	users     int
	failed    bool
	opening   sync.WaitGroup // workers that have not opened the server's file yet
	closing   sync.WaitGroup // workers that have left and close it

	in  *os.File      // up
	dir *staging.Dir  // down
	out *staging.File // down
}

// directory is a directory whose permissions and time of change are set when all its files are there.
type directory struct {
	path string // at the destination
	attr transfer.Attr
}

// pieces returns how many connections could be at work at a time.
func (q *queue) pieces() int {
	n := (len(q.small) + transfer.MaxPacked - 1) / transfer.MaxPacked
	for _, j := range q.waiting {
		n += 1 + int(j.attr.Length/transfer.PieceLen)
	}
	return n
}

// add appends a file to the queue.
func (q *queue) add(j *job) {
	j.remaining = []transfer.Extent{{Offset: 0, Length: int64(j.attr.Length)}}
	q.total += int64(j.attr.Length)
	if q.packable(j) {
		q.small = append(q.small, j)
		return
	}
	q.waiting = append(q.waiting, j)
}

// packable reports whether a file goes in a pack: it is small, and the destination's file is known without a request.
func (q *queue) packable(j *job) bool {
	here := !j.up || j.known != nil
	compare := q.cfg.Checksum && (!j.up || j.known != nil && j.known.Kind == transfer.KindFile)
	return here && !compare && !j.alone && j.attr.Length <= transfer.PackedLen &&
		j.attr.Flags&transfer.FlagSparse == 0 && len(j.remote) <= transfer.MaxPath
}

// takePack returns files for one pack; nil when there are none.
func (q *queue) takePack() (pack []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	room := transfer.BufferLen
	for len(q.small) > 0 && len(pack) < transfer.MaxPacked {
		j := q.small[0]
		if room -= transfer.PackSize(j.remote, j.attr.Length); room < 0 {
			break
		}
		pack = append(pack, j)
		q.small = q.small[1:]
	}
	return pack
}

// againAlone puts a file of a pack back, to be copied on its own.
func (q *queue) againAlone(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.alone = true
	q.waiting = append(q.waiting, j)
}

// takeJob returns the next file, or one that others copy and have pieces of left; nil when there is none.
func (q *queue) takeJob() (j *job, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.running {
		if j.joinable() {
			j.users++
			j.opening.Add(1)
			return j, false
		}
	}
	if len(q.waiting) == 0 {
		return nil, false
	}
	j = q.waiting[0]
	q.waiting = q.waiting[1:]
	q.running = append(q.running, j)
	j.users = 1
	j.opening.Add(1)
	return j, true
}

// more reports whether a further worker would find something to do.
func (q *queue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0 || len(q.small) > 0 || slices.ContainsFunc(q.running, (*job).joinable)
}

func (j *job) joinable() bool { return j.open && !j.failed && len(j.remaining) > 0 }

// piece returns the next piece of a file; n is 0 when there is none.
func (q *queue) piece(j *job) (off, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.failed || len(j.remaining) == 0 {
		return 0, 0
	}
	e := &j.remaining[0]
	off, n = e.Offset, min(transfer.PieceLen, e.Length)
	e.Offset += n
	if e.Length -= n; e.Length == 0 {
		j.remaining = j.remaining[1:]
	}
	return off, n
}

// share lets other connections join. extents are the parts to move: the rest of the file is a hole, and is done.
func (q *queue) share(j *job, extents []transfer.Extent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.open = true
	holes := int64(j.attr.Length)
	for _, e := range extents {
		holes -= e.Length
	}
	j.remaining = extents
	q.progress(holes)
}

// addProgress counts bytes that were copied, or kept.
func (q *queue) addProgress(n int64, kept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if kept {
		q.result.Kept += n
	} else {
		q.result.Bytes += n
	}
	q.progress(n)
}

func (q *queue) progress(n int64) {
	q.copiedBytes += n
	q.cfg.Progress(q.copiedBytes, q.total)
}

// leave ends one worker's part in j, and reports whether it was the last one. One that was not is counted as closing.
func (q *queue) leave(j *job) (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.users--; j.users > 0 {
		j.closing.Add(1)
		return false
	}
	q.running = slices.DeleteFunc(q.running, func(o *job) bool { return o == j })
	return true
}

// well reports whether no part of j failed so far.
func (q *queue) well(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !j.failed
}

// failJob counts a file that cannot be copied. A connection that ended is the error of the whole run, and no note of
// j's.
func (w *worker) failJob(j *job, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.failed {
		return
	}
	j.failed = true
	w.result.Failed++
	if !w.c.Over() {
		w.cfg.Note(fmt.Sprintf("%s: %v", j.name(), err))
	}
}

func (j *job) name() string {
	if j.up {
		return j.local
	}
	return j.remote
}

// copied counts a file that was copied, and unchanged one that was there.
func (q *queue) copied() {
	q.mu.Lock()
	q.result.Files++
	q.mu.Unlock()
}

func (q *queue) unchanged(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.result.Unchanged++
	q.progress(int64(j.attr.Length))
}
