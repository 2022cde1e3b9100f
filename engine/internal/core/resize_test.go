package core

import (
	"sync"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// oneAtATime is a worker that runs on the goroutine that wakes it.
type oneAtATime struct {
	atOnce
	turn sync.Mutex
}

func (o *oneAtATime) Wake() {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.atOnce.Wake()
}

// TestResizeUnderLoad resizes a completion queue that a worker fills: no completion is lost, and the order stays.
func TestResizeUnderLoad(t *testing.T) {
	const total = 2000
	d := twoLoops()
	d.shards[0].thread = &oneAtATime{atOnce: atOnce{d.shards[0]}}
	made, err := d.CreateCQ(total)
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*CQ)
	var filling sync.WaitGroup
	filling.Go(func() {
		for id := uint64(0); id < total; {
			d.shards[0].Call(func() { // a worker's turn
				for range 50 {
					c.push(&verbs.Completion{Completion: rdmap.Completion{ID: id}}, nil)
					id++
				}
			})
		}
	})
	next, resized := uint64(0), 0
	for dst := make([]verbs.Completion, 7); next < total; {
		n, err := c.Poll(dst)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range dst[:n] {
			if v.ID != next {
				t.Fatalf("completion %d instead of %d after %d resizes", v.ID, next, resized)
			}
			next++
		}
		if n > 0 && c.Resize(total) == nil {
			resized++
		}
	}
	filling.Wait()
	if resized == 0 {
		t.Errorf("resized %d times", resized)
	}
}
