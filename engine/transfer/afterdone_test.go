package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// TestWriteAfterDone: a client that keeps writing after Done cannot change what the server checks. Its STag is
// invalidated first: a later Write ends the connection, and one just before is hashed with the rest, so that the hashes
// differ.
//
//req:rfc5042-6.2.2-1 rfc5042-10.2-1
func TestWriteAfterDone(t *testing.T) {
	const size = 1 << 20
	ctx, dev, region, at := patientServer(t, size)
	good, bad := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{0xff}, size)
	var confirmed, refused int
	for round := range 20 {
		good[0] = byte(round)
		p := newPutter(ctx, t, dev, at, size)
		p.write(good)
		done := Message{Type: TypeDone, Length: size, Sum: sha256.Sum256(good)}
		if err := p.postMessage(&done); err != nil {
			t.Fatal(err)
		}
		waits := round%2 == 0
		if waits { // the server has checked
			if _, err := p.expect(ctx, TypeDone); err != nil {
				t.Fatal(err)
			}
		}
		p.write(bad)
		if !waits {
			_, err := p.expect(ctx, TypeDone)
			var no *RemoteError
			switch {
			case err == nil:
				confirmed++
			case errors.As(err, &no) && no.Code == CodeSum:
				refused++
			case !p.ended():
				t.Fatal(err)
			}
		}
		p.end.Close()
		if c := contentOf(t, region); waits && !bytes.Equal(c, good) ||
			bytes.IndexByte(c, 0xff) >= 0 {
			t.Fatalf("round %d: a late Write is in the content", round)
		}
	}
	t.Logf("of 10 Writes right after Done, %d were too late, %d were in time and refused",
		confirmed,
		refused)
}

// putter is a client whose steps a test controls.
type putter struct {
	*link
	t    *testing.T
	mem  *registration
	data []byte
	to   Message
}

func newPutter(ctx context.Context, t *testing.T, dev verbs.Device, at netip.AddrPort,
	size int) *putter {
	t.Helper()
	l, err := newLink(dev, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p := &putter{link: l, t: t, data: make([]byte, size)}
	p.mem, err = l.expose(p.data, verbs.LocalWrite, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Dial(ctx, at, l.end.QP, verbs.DialConfig{}); err != nil {
		t.Fatal(err)
	}
	l.startLoops()
	if err := l.postMessage(&Message{Type: TypePut, Length: uint64(size)}); err != nil {
		t.Fatal(err)
	}
	if p.to, err = l.expect(ctx, TypeRegion); err != nil {
		t.Fatal(err)
	}
	return p
}

// write posts one Write of everything, and waits for its completion.
func (p *putter) write(b []byte) {
	p.t.Helper()
	copy(p.data, b)
	err := p.post(&verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.mem.mr.SGE(0, len(b))},
		RemoteSTag: p.to.STag, RemoteTO: p.to.TO, Flags: verbs.Signaled})
	if err != nil && !p.ended() {
		p.t.Fatal(err)
	}
	for err == nil {
		var c [1]verbs.Completion
		if _, err := p.end.SendCQ.Wait(p.t.Context(), c[:]); err != nil {
			return
		}
		if c[0].Op == rdmap.WRWrite || c[0].Err() != nil {
			return
		}
	}
}

func contentOf(t *testing.T, r *Region) []byte {
	t.Helper()
	c, err := r.hold()
	if err != nil {
		t.Fatal(err)
	}
	defer r.releaseMemory(c)
	return bytes.Clone(c.mem[:c.length])
}

// lateReader writes into its buffer when release is closed.
type lateReader struct {
	asked            chan struct{}
	release, written chan struct{}
}

func (r *lateReader) Read(b []byte) (int, error) {
	close(r.asked)
	<-r.release
	clear(b)
	close(r.written)
	return 0, io.EOF
}

// TestLateReader: input that arrives after the put has failed and its client is closed finds the memory still mapped.
func TestLateReader(t *testing.T) {
	ctx, dev, _, at := patientServer(t, 1<<20)
	c, err := Dial(ctx, dev, at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r := &lateReader{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	go func() { <-r.asked; cancel() }()
	if _, err := c.Put(ctx, r, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(r.release)
	<-r.written
}
