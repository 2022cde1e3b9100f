package daemon_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"xwarp/engine/daemon"
)

// TestLogWriterNeverBlocks: while the reader of the log stalls, writing returns, memory is bounded, and the number of
// dropped lines is reported once the reader goes on.
func TestLogWriterNeverBlocks(t *testing.T) {
	r, w := io.Pipe() // a write to w blocks until r is read
	l := daemon.NewLogWriter(w, func(n int) { fmt.Fprintf(w, "suppressed %d\n", n) })
	const lines, size = 4096, 1024
	for range lines {
		l.Write([]byte(strings.Repeat("x", size-1) + "\n"))
	}
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(r)
		read <- b
	}()
	l.Close()
	w.Close()
	got := <-read
	kept, dropped := bytes.Count(got, []byte("x\n")), 0
	for line := range bytes.Lines(got) { // there is one report for each batch
		n := 0
		fmt.Sscanf(string(line), "suppressed %d", &n)
		dropped += n
	}
	if dropped == 0 {
		t.Fatalf("%d of %d lines were written, and no line says that others are missing", kept, lines)
	}
	if kept+dropped != lines || kept*size > 3<<20 {
		t.Errorf("%d lines written, %d reported as dropped, of %d", kept, dropped, lines)
	}
}
