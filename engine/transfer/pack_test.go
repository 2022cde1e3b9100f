package transfer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/engine/host/staging"
)

// TestPackIsWholeOrRefused truncates a pack at each length: if the cut is inside a file, parsePack returns an error and
// no file.
func TestPackIsWholeOrRefused(t *testing.T) {
	want := []Packed{
		{"a", Attr{Kind: KindFile, Mode: 0o644, Length: 5, Modified: Time{7, 0}}, []byte("hello")},
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

// TestPackReplacesOnce: a pack that has a name several times, or that conflicts with another, replaces the older
// content once, so that the directory's bytes are counted correctly.
func TestPackReplacesOnce(t *testing.T) {
	tr := tree(t, TreeConfig{})
	if err := tr.write("x", strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	before, files := tr.Used()
	pack := func() *packStore {
		return &packStore{t: tr, b: &buffer{dirs: staging.Dirs{}}}
	}
	a, b := pack(), pack()
	v := Packed{"x", Attr{Kind: KindFile, Mode: 0o644, Length: 1}, []byte("y")}
	for i := range 3 {
		a.add(i, &v)
	}
	b.add(0, &v)
	if taken := b.commit(); taken != (Taken{}) {
		t.Errorf("the second pack stored %v", taken)
	}
	if taken := a.commit(); taken != (Taken{1}) {
		t.Errorf("the first pack stored %v", taken)
	}
	b.add(0, &v)
	if taken := b.commit(); taken != (Taken{1}) {
		t.Errorf("the second pack stored %v afterwards", taken)
	}
	if o, f := tr.Used(); o != before-999 || f != files {
		t.Errorf("%d bytes in %d files, want %d in %d", o, f, before-999, files)
	}
	for _, s := range []*packStore{a, b} {
		if err := errors.Join(s.b.batch.Close(), s.b.dirs.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A client that changes its buffer while the server works on a pack changes no name or length that was checked.
func TestPackIsDecodedOnce(t *testing.T) {
	b := appendEntry(nil, &Entry{"name", Attr{Kind: KindFile, Mode: 0o600, Length: 3}})
	b = append(b, "abc"...)
	files, err := parsePack(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = '/'
	}
	if f := files[0]; f.Path != "name" || f.Attr.Length != 3 || len(f.Content) != 3 {
		t.Errorf("%+v", f)
	}
}
