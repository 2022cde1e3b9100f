package verbs_test

import (
	"bytes"
	"errors"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/engine/verbs"
)

// TestRemoteMR checks the bytes that Append makes for peers. ParseRemoteMR reproduces the value from them, and refuses
// descriptions that are too short or too long, or have another magic or version.
func TestRemoteMR(t *testing.T) {
	r := verbs.RemoteMR{
		Access: verbs.RemoteRead | verbs.RemoteWrite, STag: 0x01020304, Flushable: true,
		Base: 0x10, Length: 0x2000,
	}
	b := r.Append(nil)
	golden := append([]byte("XWRM\x01\x06\x00\x00\x01\x02\x03\x04\x00\x00\x00\x01"),
		0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x20, 0)
	if !bytes.Equal(b, golden) {
		t.Errorf("%x, want %x", b, golden)
	}
	if again, err := verbs.ParseRemoteMR(b); err != nil || again != r {
		t.Errorf("%+v was parsed as %+v, %v", r, again, err)
	}
	for n := range b {
		if _, err := verbs.ParseRemoteMR(b[:n]); !errors.Is(err, verbs.ErrRemoteMR) {
			t.Errorf("%d bytes are accepted: %v", n, err)
		}
	}
	for _, bad := range [][]byte{
		append(b, 0), append([]byte("XWRN"), b[4:]...), append([]byte("XWRM\x02"), b[5:]...),
	} {
		if _, err := verbs.ParseRemoteMR(bad); !errors.Is(err, verbs.ErrRemoteMR) {
			t.Errorf("%x is taken: %v", bad, err)
		}
	}
}

// FuzzRemoteMR: if ParseRemoteMR accepts an input, the input has RemoteMRLen bytes, and Append and ParseRemoteMR
// reproduce its result.
func FuzzRemoteMR(f *testing.F) {
	f.Add(verbs.RemoteMR{Access: verbs.RemoteRead | verbs.RemoteWrite, STag: 0x1234,
		Flushable: true, Base: 1 << 40, Length: 4096}.Append(nil))
	f.Add(make([]byte, verbs.RemoteMRLen))
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		r, err := verbs.ParseRemoteMR(b)
		if err != nil {
			return
		}
		again, err := verbs.ParseRemoteMR(r.Append(nil))
		if err != nil || again != r || len(b) != verbs.RemoteMRLen {
			t.Fatalf("%x: %+v and %+v, %v", b, r, again, err)
		}
	})
}
