package bpf

import "testing"

// TestTwin: a twin decides by the claims and settings of the first program and shares its counters, but its sockets are
// its own. The first program works after the twin is closed.
func TestTwin(t *testing.T) {
	b := newBench(t, true)
	twin, err := b.Twin()
	if err != nil {
		t.Fatal(err)
	}
	second := &bench{TB: t, Steering: twin}
	for _, f := range fixtures() {
		want := f.want
		if want.Steered() {
			want = DropNoSocket
		}
		if second.limitless(); f.want == Fragment {
			want = PassFragment // its first fragment was dropped
		}
		second.expect(f.frame, want)
	}
	if err := twin.SetSocket(0, newXSK(t)); err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures() {
		second.limitless()
		second.expect(f.frame, f.want)
	}
	if n, err := b.NoSocketDrops(0); err != nil || n == 0 {
		t.Errorf("the first program counts %d drops, %v", n, err)
	}
	b.last = second.last
	if err := twin.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures() {
		b.limitless()
		b.expect(f.frame, f.want)
	}
}
