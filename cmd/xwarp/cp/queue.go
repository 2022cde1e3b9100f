package cp

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"xwarp/engine/host/staging"
	"xwarp/engine/transfer"
)

// queue holds the files of a run. Several workers share it.
type queue struct {
	cfg  Config
	up   bool        // copy to the server
	dirs []directory // parents before children

	mu          sync.Mutex
	waiting     []*job
	small       []*job // waiting files that are sent in packs
	running     []*job
	total       int64 // bytes of all files
	copiedBytes int64 // of these, copied or already present
	result      Result
}

// job is one file. The queue's lock guards its state.
type job struct {
	local, remote string
	attr          transfer.Attr
	up            bool
	session       uint64 // shared by the connections that copy it together

	known *transfer.Attr // attributes of the destination; nil: unknown
	alone bool           // cannot be sent in a pack

	open      bool              // other workers may join
	resumed   bool              // part of it may exist: compare each piece before moving it
	remaining []transfer.Extent // not yet taken by a worker
	users     int               // workers that copy it
	failed    bool
	opening   sync.WaitGroup // workers that are opening the server's file
	closing   sync.WaitGroup // workers that are closing it

	in  *os.File      // copy up: the local file
	dir *staging.Dir  // copy down: directory of out
	out *staging.File // copy down: the local file
}

// directory is a directory whose permissions and modification time are set after its files are copied.
type directory struct {
	path string // at the destination
	attr transfer.Attr
}

// pieces returns about how many connections can work in parallel: one for each pack, if all packs are full, and one for
// each piece of a file.
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

// packable reports whether a file is sent in a pack: it is small and not sparse, its path fits, no pack with it has
// failed, and neither the state of the destination nor its checksum must be requested.
func (q *queue) packable(j *job) bool {
	here := !j.up || j.known != nil
	compare := q.cfg.Checksum && (!j.up || j.known != nil && j.known.Kind == transfer.KindFile)
	return here && !compare && !j.alone && j.attr.Length <= transfer.PackedLen &&
		j.attr.Flags&transfer.FlagSparse == 0 && len(j.remote) <= transfer.MaxPath
}

// takePack returns files for one pack, or nil if there are none.
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

// requeueUnpacked requeues a file of a pack, to be copied on its own.
func (q *queue) requeueUnpacked(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.alone = true
	q.waiting = append(q.waiting, j)
}

// takeJob returns a file that other workers already copy and that has remaining pieces. If there is none, it returns
// the next waiting file, with first true, or nil.
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

// more reports whether there is work for another worker.
func (q *queue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0 || len(q.small) > 0 || slices.ContainsFunc(q.running, (*job).joinable)
}

func (j *job) joinable() bool { return j.open && !j.failed && len(j.remaining) > 0 }

// piece takes the next remaining piece of a file. n is 0 if there is none.
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

// share lets other workers join the copy of j. extents are the parts to move; the rest of the file is a hole and counts
// as done.
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

// addProgress counts bytes that were copied or kept.
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

// leave removes a worker from j and reports whether it was the last one. If not, j.closing counts the worker, which
// must call Done.
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

// allPartsSucceeded reports whether no part of j has failed.
func (q *queue) allPartsSucceeded(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !j.failed
}

// failJob counts a file that cannot be copied as failed, once. It calls Note, unless the connection ended, which is an
// error of the whole run.
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

// copied counts a copied file. unchanged counts a file that was already present.
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
