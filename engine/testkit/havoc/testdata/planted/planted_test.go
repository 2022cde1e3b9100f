// Package planted fails for few inputs, which TestFinds looks for.
package planted

import (
	"bytes"
	"testing"

	"xwarp/engine/testkit/havoc"
)

func FuzzPlanted(f *testing.F) {
	f.Add([]byte("GET /index 1"), "name", uint16(3), int8(0), true)
	havoc.Fuzz(f, func(t *testing.T, b []byte, s string, u uint16, i int8, yes bool) {
		if len(b) > 12 && bytes.HasPrefix(b, []byte("GET ")) && u == 1<<15 && i < 0 && !yes {
			if s == "name" {
				panic("planted panic")
			}
			t.Fatal("planted failure")
		}
	})
}
