package transfer_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/transfer"
)

// A file of unknown length takes as much disk space as it has bytes, however large the region is.
func TestUnknownLength(t *testing.T) {
	content := noise(65<<20 + 3) // more than is granted at first
	for _, tc := range []struct {
		size int64
		want string // the error
	}{{1 << 42, ""}, {66 << 20, ""}, {65 << 20, "more bytes than the server's region"}} {
		name := filepath.Join(t.TempDir(), "region")
		r, err := transfer.OpenRegion(transfer.FileConfig{Path: name, Size: tc.size})
		if err != nil {
			t.Fatal(err)
		}
		b := start(t, r, nil)
		pipe, w := io.Pipe()
		go func() {
			w.Write(content)
			w.Close()
		}()
		_, err = b.dial().Put(patience(t), pipe, -1)
		pipe.Close()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil ||
			!strings.Contains(err.Error(), tc.want)) {
			t.Errorf("into a region of %d bytes: %v, want %q", tc.size, err, tc.want)
		}
		if got, err := os.ReadFile(name); tc.want == "" && !bytes.Equal(got, content) {
			t.Errorf("the file has %d bytes, %v", len(got), err)
		}
	}
}
