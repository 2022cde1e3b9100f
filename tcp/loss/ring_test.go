package loss

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestRestoreOrder: restore orders the records in flight by the time sent, in whichever order they were lost.
func TestRestoreOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 1000 {
		q := ring{slot: make([]record, 8)}
		for i := range 1 + r.IntN(20) {
			q.push(seq.Num(10*i), 10, Data, tick.Time(i/4))
		}
		for id := q.head; id != q.tail; id++ { // retransmit some, out of order
			if r.IntN(3) == 0 {
				q.unlink(id)
				q.at(id).sent = tick.Time(100 + r.IntN(3))
				q.link(id, inFlight)
			}
		}
		n, bytes := 0, 0
		for id := q.head; id != q.tail; id++ {
			p := place(r.IntN(int(places)))
			q.move(id, p)
			if p != sacked {
				n, bytes = n+1, bytes+10
			}
		}
		q.restore()
		l := q.list[inFlight]
		if l.n != n || l.bytes != bytes || q.list[lost].n+q.list[lostAgain].n != 0 {
			t.Fatalf("%d records of %d bytes are in flight, want %d of %d", l.n, l.bytes, n,
				bytes)
		}
		for id := l.first; n > 1; n-- {
			next := q.at(id).next
			if a, b := q.at(id), q.at(next); b.sent < a.sent || b.sent == a.sent && next <= id {
				t.Fatalf("record %d, sent at %d, is before record %d, sent at %d", id, a.sent, next,
					b.sent)
			}
			id = next
		}
	}
}
