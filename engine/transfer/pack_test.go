package transfer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPackIsWholeOrRefused cuts a pack at each length: nothing of one that is cut inside a file is taken, so that the
// server has counted nothing.
func TestPackIsWholeOrRefused(t *testing.T) {
	want := []Packed{
		{"a", Attr{Kind: KindFile, Mode: 0o644, Length: 5, Modified: 7}, []byte("hello")},
		{"b/empty", Attr{Kind: KindFile}, []byte{}},
		{"c", Attr{Kind: KindFile, Length: 1}, []byte("x")},
	}
	var b []byte
	ends := map[int]int{0: 0} // files, by length of the pack
	for i, f := range want {
		b = append(appendEntry(b, &Entry{f.Path, f.Attr}), f.Content...)
		ends[len(b)] = i + 1
	}
	for n := range len(b) + 1 {
		got, err := parsePack(b[:n])
		files, whole := ends[n]
		switch {
		case whole && err != nil, !whole && !errors.Is(err, ErrBody):
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		case whole && !cmp.Equal(got, append([]Packed(nil), want[:files]...)):
			t.Errorf("%d of %d bytes: %v", n, len(b), got)
		case !whole && got != nil:
			t.Errorf("%d of %d bytes: %v with an error", n, len(b), got)
		}
	}
}

func TestPackHasAtMostMaxPackedFiles(t *testing.T) {
	var b []byte
	for i := range MaxPacked {
		b = appendEntry(b, &Entry{Name: fmt.Sprint(i)})
	}
	if files, err := parsePack(b); len(files) != MaxPacked || err != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
	if _, err := parsePack(appendEntry(b, &Entry{Name: "more"})); !errors.Is(err, ErrBody) {
		t.Errorf("one more: %v, want %v", err, ErrBody)
	}
}
