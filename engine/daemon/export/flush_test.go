package export

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// slowDisk is a disk whose msyncs wait for the test, one by one.
type slowDisk struct {
	f     *flusher
	begun chan extent
	goOn  chan error
}

func newSlowDisk() *slowDisk {
	d := &slowDisk{begun: make(chan extent), goOn: make(chan error)}
	d.f = &flusher{sync: func(from, to uint64) error {
		d.begun <- extent{from, to}
		return <-d.goOn
	}}
	return d
}

// ask starts a flush, and returns when the flush is in the queue.
func (d *slowDisk) ask(from, to uint64) <-chan error {
	waiting := func() int {
		d.f.mu.Lock()
		defer d.f.mu.Unlock()
		return len(d.f.queue)
	}
	before, done := waiting(), make(chan error, 1)
	go func() { done <- d.f.flush(from, to) }()
	for waiting() == before {
		runtime.Gosched()
	}
	return done
}

// writes waits for n msyncs, lets each succeed, and returns what they wrote.
func (d *slowDisk) writes(n int) (list []extent) {
	for range n {
		list = append(list, <-d.begun)
		d.goOn <- nil
	}
	return list
}

// All flushes of bytes of one range that are requested during an msync are served by one further msync.
func TestFlushesAreShared(t *testing.T) {
	d := newSlowDisk()
	done := []<-chan error{d.ask(0, 100)}
	first := <-d.begun
	for range 20 {
		done = append(done, d.ask(0, 100), d.ask(40, 60))
	}
	d.goOn <- nil
	got := append([]extent{first}, d.writes(1)...)
	if want := []extent{{0, 100}, {0, 100}}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v: bytes requested during the first msync are missing", got, want)
	}
	for _, c := range done {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
}

// A small flush waits only for the piece of a large flush that is being written. Only requested bytes are written, each
// once.
func TestFlushesTakeTurns(t *testing.T) {
	d := newSlowDisk()
	const p = flushPiece
	large := d.ask(0, 3*p)
	first := <-d.begun
	small, other := d.ask(2*p, 2*p+10), d.ask(9*p, 9*p+1)
	d.goOn <- nil
	got := append([]extent{first}, d.writes(2)...)
	if err := errors.Join(<-small, <-other); err != nil {
		t.Error(err)
	}
	got = append(got, d.writes(2)...)
	if err := <-large; err != nil {
		t.Error(err)
	}
	want := []extent{{0, p}, {2 * p, 2*p + 10}, {9 * p, 9*p + 1}, {p, 2 * p}, {2*p + 10, 3 * p}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// A disk error is reported to the flush whose bytes were not written, and to no other.
func TestFlushFails(t *testing.T) {
	d := newSlowDisk()
	broken := errors.New("disk on fire")
	hold := d.ask(500, 501)
	<-d.begun
	bad, good := d.ask(0, 100), d.ask(200, 300)
	d.goOn <- nil
	<-d.begun
	d.goOn <- broken
	d.writes(1)
	if err := <-bad; !errors.Is(err, broken) {
		t.Errorf("the failed one: %v", err)
	}
	if err := errors.Join(<-good, <-hold); err != nil {
		t.Errorf("the others: %v", err)
	}
}
