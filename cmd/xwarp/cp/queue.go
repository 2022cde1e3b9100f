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
	cfg Config

	mu      sync.Mutex
	waiting []*job
	running []*job
	total   int64 // octets of all files
	done    int64 // of these, copied or there
	result  Result
}

// job is one file. The queue's lock guards what is below it.
type job struct {
	local, remote string
	attr          transfer.Attr
	up            bool
	session       uint64 // of the connections that copy it together

	open    bool  // others may join
	resumed bool  // some of it may be there: compare before a piece is moved
	next    int64 // where the next piece begins
	users   int
	failed  bool

	in  *os.File      // up
	dir *staging.Dir  // down
	out *staging.File // down
}

// pieces returns how many connections could be at work at a time.
func (q *queue) pieces() int {
	n := 0
	for _, j := range q.waiting {
		n += 1 + int(j.attr.Length/transfer.PieceLen)
	}
	return n
}

// add appends a file to what is to be done.
func (q *queue) add(j *job) {
	q.waiting = append(q.waiting, j)
	q.total += int64(j.attr.Length)
}

// take returns the next file, or one that others copy and have pieces of left; nil when there is none.
func (q *queue) take() (j *job, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.running {
		if j.joinable() {
			j.users++
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
	return j, true
}

// more reports whether a further worker would find something to do.
func (q *queue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0 || slices.ContainsFunc(q.running, (*job).joinable)
}

func (j *job) joinable() bool { return j.open && !j.failed && j.next < int64(j.attr.Length) }

// piece returns the next piece of a file; n is 0 when there is none.
func (q *queue) piece(j *job) (off, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.failed {
		return 0, 0
	}
	off = j.next
	n = min(transfer.PieceLen, int64(j.attr.Length)-off)
	j.next += n
	return off, n
}

// moved counts octets that were copied, or kept.
func (q *queue) moved(n int64, kept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if kept {
		q.result.Kept += n
	} else {
		q.result.Octets += n
	}
	q.progress(n)
}

func (q *queue) progress(n int64) {
	q.done += n
	q.cfg.Progress(q.done, q.total)
}

// share has others join.
func (q *queue) share(j *job) {
	q.mu.Lock()
	j.open = true
	q.mu.Unlock()
}

// whole reports whether the caller is the only one at work on j, of which nothing failed.
func (q *queue) whole(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return j.users == 1 && !j.failed
}

// left ends one worker's part in j, and reports whether it was the last one, and whether j went well.
func (q *queue) left(j *job) (last, well bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.users--; j.users == 0 {
		q.running = slices.DeleteFunc(q.running, func(o *job) bool { return o == j })
	}
	return j.users == 0, !j.failed
}

// fail has nobody take further pieces of j.
func (q *queue) fail(j *job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !j.failed {
		j.failed = true
		q.result.Failed++
		q.cfg.Note(fmt.Sprintf("%s: %v", j.name(), err))
	}
}

func (j *job) name() string {
	if j.up {
		return j.local
	}
	return j.remote
}

// copied counts a file that was copied, unchanged one that was there.
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
