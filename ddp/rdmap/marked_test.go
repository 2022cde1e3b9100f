package rdmap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompletionReturnsMark: the completion of a work request with the flag Marked has the flag WasMarked, and no other
// completion has it.
func TestCompletionReturnsMark(t *testing.T) {
	a, b := twins(t, nil, Params{})
	for id := range uint64(3) {
		wr := RecvWR{ID: id, Flags: WRFlags(id) & 1 * Marked}
		if err := b.qp.PostRecv(&wr); err != nil {
			t.Fatal(err)
		}
		a.send(SendWR{ID: id, Op: WRSend, Flags: Signaled | wr.Flags})
	}
	for range 2 { // the third one is flushed
		b.push(a, a.pull(1500))
	}
	a.qp.Abort()
	b.qp.Abort()
	marked := map[uint64]bool{}
	for _, c := range append(a.take(), b.take()...) {
		marked[c.ID] = c.Flags&WasMarked != 0 || marked[c.ID]
	}
	if d := cmp.Diff(map[uint64]bool{0: false, 1: true, 2: false}, marked); d != "" {
		t.Errorf("marked (-want +got):\n%s", d)
	}
}
