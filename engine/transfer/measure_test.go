package transfer_test

import (
	"os"
	"testing"
	"time"

	"xwarp/engine/verbs"
)

// A measurement moves bytes in both directions, leaves no file, and the connection copies files afterwards.
func TestMeasureLeavesNoFile(t *testing.T) {
	b, dir := start(t, nil)
	c := b.dial()
	for _, op := range []verbs.WROp{verbs.WRWrite, verbs.WRRead} {
		n, took, err := c.Measure(patience(t), op, 10*time.Millisecond)
		if err != nil || n <= 0 || took < 10*time.Millisecond {
			t.Errorf("%v: %d bytes in %v, %v", op, n, took, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the directory has %v, %v", names, err)
	}
	b.streamed([]byte("after"))
	b.has(dir, []byte("after"))
}
