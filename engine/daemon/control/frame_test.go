package control

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/testkit/havoc"
)

// pair returns the two ends of a stream socket.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var c [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		n, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		c[i] = n.(*net.UnixConn)
	}
	return c[0], c[1]
}

func TestFrame(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := NewSocket(a, 0).Send(KindRequest, []byte(`{"id":1,"op":"x"}`),
		int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	// PROTOCOL.md: length 17 little endian, kind 1, one descriptor, two zeros.
	const want = "1100000001010000" + "7b226964223a312c226f70223a2278227d"
	got := make([]byte, len(want)/2)
	if _, err := io.ReadFull(b, got); err != nil || hex.EncodeToString(got) != want {
		t.Errorf("frame on the wire: %x, %v, want %s", got, err, want)
	}
}

func TestReceive(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a, b := pair(t)
	from, to := NewSocket(a, 0), NewSocket(b, 1<<20)
	long := bytes.Repeat([]byte("x"), 1<<20) // more than a socket buffer holds
	sent := make(chan error, 1)
	go func() {
		sent <- errors.Join(from.Send(KindReply, []byte("{}")), from.Send(KindEvent, long,
			int(null.Fd()), int(null.Fd())), from.Send(KindReply, nil))
		a.Close()
	}()
	for _, want := range []struct {
		kind  Kind
		n     int
		files int
	}{{KindReply, 2, 0}, {KindEvent, 1 << 20, 2}, {KindReply, 0, 0}} {
		k, body, files, err := to.Receive()
		if err != nil || k != want.kind || len(body) != want.n || len(files) != want.files {
			t.Fatalf("kind %d, %d bytes, %d descriptors, %v; want %+v", k, len(body), len(files),
				err, want)
		}
		for _, fd := range files {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil ||
				flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("a received descriptor survives exec: %v", err)
			}
		}
		CloseAll(files)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, _, _, err := to.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
}

// TestReceiveLeaksNothing sends invalid frames with descriptors, and checks that no descriptor leaks.
func TestReceiveLeaksNothing(t *testing.T) {
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	a, b := pair(t)
	before := count()
	for _, data := range []string{"\x02\x00\x00\x00\x01\x00\x00\x00{}",
		"\xff\xff\xff\xff\x01\x01\x00\x00", "\x00\x00\x00\x00\x07\x01\x00\x00"} {
		a.WriteMsgUnix([]byte(data), unix.UnixRights(0, 1), nil)
		_, _, files, err := NewSocket(b, 100).Receive()
		if !errors.Is(err, ErrFrame) || len(files) != 2 {
			t.Errorf("%x: %d descriptors, %v", data, len(files), err)
		}
		CloseAll(files)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func FuzzFrame(f *testing.F) {
	for _, e := range examples(f) {
		h := header{length: len(e), kind: KindRequest}
		b := make([]byte, headerLen)
		h.put(b)
		f.Add(append(b, e...))
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, err := parseHeader(b, MaxRequest)
		if err != nil {
			return
		}
		again := make([]byte, headerLen)
		if h.put(again); !bytes.Equal(again, b[:headerLen]) {
			t.Errorf("header %x is printed as %x", b[:headerLen], again)
		}
		r, err := ParseRequest(b[headerLen:])
		if err != nil {
			return
		}
		if make := args[r.Op]; make != nil {
			r.ParseArgs(make())
		}
	})
}

// TestClosedConn: after Close, Send and Receive return ErrConnClosed.
func TestClosedConn(t *testing.T) {
	end, _ := pair(t)
	a := NewSocket(end, 100)
	a.Close()
	if err := a.Send(KindRequest, nil); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, _, _, err := a.Receive(); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Receive: %v", err)
	}
}

// TestNestedRequests: a request that nests deeply is refused before it is parsed. Brackets in text do not count.
func TestNestedRequests(t *testing.T) {
	nested := func(n int) string {
		return `{"id":1,"op":"x","args":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	for _, c := range []struct {
		body string
		ok   bool
	}{
		{nested(maxNesting - 1), true}, {nested(maxNesting), false}, {nested(30_000), false},
		{`{"id":1,"op":"x","args":{"text":"\"[[[[[[[[[[[[{{{{{{{{\\"}}`, true},
		{strings.Repeat("{", 30_000), false}, {`{"id":1,"op":"` + strings.Repeat("[", 30_000), false},
	} {
		if _, err := ParseRequest([]byte(c.body)); (err == nil) != c.ok {
			t.Errorf("%.60s: %v", c.body, err)
		}
	}
	if n := nesting([]byte(nested(30_000))); n != 30_001 {
		t.Errorf("%d levels", n)
	}
}
