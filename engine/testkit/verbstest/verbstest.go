// Package verbstest provides one end of a connection for tests, on any device of package verbs. Programs started by
// tests use Make, Dial, Next, Do and WriteAndRead, which return errors; the rest is for tests themselves.
package verbstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"xwarp/engine/verbs"
)

// rights are those of an End's region.
const rights = verbs.LocalWrite | verbs.RemoteRights | verbs.BindMW

// patience bounds the wait for one completion.
const patience = 20 * time.Second

// End is an endpoint and a region. Closing the device closes both.
type End struct {
	*verbs.Endpoint
	T   testing.TB // of New
	CQ  verbs.CQ   // of both queues
	Mem []byte
	MR  verbs.MR // all of Mem, with all rights
}

// Make creates an End with a region of the given size. Its memory comes from the device, because the race detector does
// not see how a peer's accesses to registered memory are ordered with those of Go.
func Make(dev verbs.Device, size int) (*End, error) {
	cq, err := dev.CreateCQ(1024)
	if err != nil {
		return nil, err
	}
	p, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{
		QPConfig: verbs.QPConfig{SendCQ: cq, RecvCQ: cq},
	})
	if err != nil {
		return nil, err
	}
	e := &End{Endpoint: p, CQ: cq}
	if e.MR, err = p.Buffer(size, rights); err != nil {
		return nil, err
	}
	e.Mem = e.MR.Bytes()
	return e, nil
}

// Dial connects e to a peer that sends its region as private data.
func (e *End) Dial(ctx context.Context, at netip.AddrPort) (peer verbs.RemoteMR, err error) {
	if err := e.Endpoint.Dial(ctx, at, verbs.DialConfig{}); err != nil {
		return peer, err
	}
	return e.RemoteMR()
}

// Next waits for a completion. It fails if the completion did.
func (e *End) Next(ctx context.Context) (verbs.Completion, error) {
	c, err := verbs.WaitOne(ctx, e.CQ)
	if err != nil {
		i, _ := e.QP.Info()
		err = fmt.Errorf("completion %d: %w; queue pair: %w, %+v", c.ID, err, e.QP.Err(), i)
	}
	return c, err
}

// Do posts wr and waits for its completion.
func (e *End) Do(ctx context.Context, wr verbs.SendWR) error {
	_, err := e.Endpoint.Do(ctx, &wr)
	return err
}

// Pattern returns the content that WriteAndRead leaves in the first n bytes of the peer's region.
func Pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// WriteAndRead writes half of e's region into the peer's, reads it back into the other half, and compares.
func (e *End) WriteAndRead(ctx context.Context, peer verbs.RemoteMR) error {
	half := len(e.Mem) / 2
	copy(e.Mem, Pattern(half))
	for _, wr := range []verbs.SendWR{
		{Op: verbs.WRWrite, SGL: []verbs.SGE{e.MR.SGE(0, half)}},
		{Op: verbs.WRRead, SGL: []verbs.SGE{e.MR.SGE(half, half)}},
	} {
		wr.RemoteSTag, wr.RemoteTO = peer.STag, peer.Base
		if err := e.Do(ctx, wr); err != nil {
			return err
		}
	}
	if !bytes.Equal(e.Mem[:half], e.Mem[half:2*half]) {
		return errors.New("the bytes read differ from those written")
	}
	return nil
}

// New is Make for a test.
func New(t testing.TB, dev verbs.Device, size int) *End {
	t.Helper()
	e, err := Make(dev, size)
	if err != nil {
		t.Fatal(err)
	}
	e.T = t
	return e
}

// Wait returns the next completion, which must be successful.
func (e *End) Wait() verbs.Completion {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := e.Next(ctx)
	if err != nil {
		e.T.Fatal(err)
	}
	return c
}

// Post posts wr as a signaled request.
func (e *End) Post(wr verbs.SendWR) {
	e.T.Helper()
	wr.Flags |= verbs.Signaled
	if err := e.QP.PostSend(&wr); err != nil {
		e.T.Fatal(err)
	}
}

// Connect joins two ends; b listens.
func Connect(t testing.TB, a, b *End, at netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := b.Dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		err := b.Accept(ctx, l, []byte("welcome"))
		if got := b.QP.Params(); err == nil && string(got.PrivateData) != "hello" {
			err = fmt.Errorf("private data of the request: %q", got.PrivateData)
		}
		accepted <- err
	}()
	if err := a.Endpoint.Dial(ctx, l.Addr(),
		verbs.DialConfig{PrivateData: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if got := a.QP.Params().PrivateData; string(got) != "welcome" {
		t.Errorf("private data of the reply: %q", got)
	}
	if a.QP.RemoteAddr() != l.Addr() || b.QP.RemoteAddr() != a.QP.LocalAddr() {
		t.Errorf("addresses: %v to %v, %v to %v", a.QP.LocalAddr(), a.QP.RemoteAddr(),
			b.QP.LocalAddr(), b.QP.RemoteAddr())
	}
}

// Exercise moves data by Write, Read, Send and an atomic between connected ends, and checks it.
func Exercise(t testing.TB, a, b *End) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	half := len(a.Mem) / 2
	for i := range a.Mem[:half] {
		a.Mem[i] = byte(rnd.Uint32())
	}
	peer := b.MR.STag()
	do := func(wr verbs.SendWR, n int) {
		t.Helper()
		a.Post(wr)
		if c := a.Wait(); c.ID != wr.ID || c.Op != wr.Op || c.QP != a.QP ||
			c.ByteLen != uint32(n) {
			t.Fatalf("completion %+v, want %v of %d bytes", c, wr.Op, n)
		}
	}
	do(verbs.SendWR{ID: 1, Op: verbs.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, half)},
		RemoteSTag: peer}, half)
	do(verbs.SendWR{ID: 2, Op: verbs.WRRead, RemoteSTag: peer, SGL: []verbs.SGE{
		a.MR.SGE(half, 10), a.MR.SGE(half+10, half/2), a.MR.SGE(half+10+half/2, half-10-half/2),
	}}, half)
	// The completion of the Write means that its memory is free; that of the Read after it, that the Write was placed
	// (RFC 5040, 5.5).
	if !bytes.Equal(b.Mem[:half], a.Mem[:half]) {
		t.Fatal("RDMA Write: target differs from source")
	}
	if !bytes.Equal(a.Mem[half:2*half], b.Mem[:half]) {
		t.Fatal("RDMA Read: sink differs from source")
	}
	n := min(half, 100_000)
	if err := b.QP.PostRecv(&verbs.RecvWR{ID: 3,
		SGL: []verbs.SGE{b.MR.SGE(half, n)}}); err != nil {
		t.Fatal(err)
	}
	// The receive is posted before the Send arrives: a daemon has processed it when Info returns, a worker when it has
	// served a Read.
	if _, err := b.QP.Info(); err != nil {
		t.Fatal(err)
	}
	do(verbs.SendWR{ID: 4, Op: verbs.WRRead, SGL: []verbs.SGE{a.MR.SGE(half, 8)},
		RemoteSTag: peer}, 8)
	do(verbs.SendWR{ID: 5, Op: verbs.WRSend, SGL: []verbs.SGE{a.MR.SGE(0, n)}}, n)
	if c := b.Wait(); c.ID != 3 || c.ByteLen != uint32(n) || c.QP != b.QP {
		t.Fatalf("receive: %+v", c)
	}
	if !bytes.Equal(b.Mem[half:half+n], a.Mem[:n]) {
		t.Fatal("Send: receive buffer differs from source")
	}
	clear(b.Mem[:8])
	for i := range 2 {
		do(verbs.SendWR{ID: 6, Op: verbs.WRFetchAdd, SGL: []verbs.SGE{a.MR.SGE(half, 8)},
			RemoteSTag: peer, Data: 1}, 8)
		was := make([]byte, 8)
		binary.NativeEndian.PutUint64(was, uint64(i))
		if !bytes.Equal(a.Mem[half:half+8], was) {
			t.Fatalf("atomic %d returned %x", i, a.Mem[half:half+8])
		}
	}
}
