package sockets

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// TestKernelReclaim flushes a Write that a peer does not receive: after the completion its memory belongs to the
// consumer, and the device does not read it any more.
func TestKernelReclaim(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	peer := answerMPA(t, func(net.Conn) { <-end }) // it reads no FPDU
	d, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const size = 16 << 20
	mem := bytes.Repeat([]byte("lent"), size/4)
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(16)
	mr, err := pd.RegMR(mem, verbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	q := v.(*core.QP)
	if err := d.Dial(t.Context(), peer, q,
		verbs.DialConfig{MPA: &verbs.MPAConfig{Markers: verbs.MarkersOff}}); err != nil {
		t.Fatal(err)
	}
	if err := q.PostSend(&verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{mr.SGE(0, size)},
		RemoteSTag: 1}); err != nil {
		t.Fatal(err)
	}
	core, below := core.Below(q)
	kc := below.(*conn)
	for blocked, turns := false, 0; !blocked && turns < 1<<20; turns++ {
		kc.worker.shard.Call(func() { blocked = !kc.writable && kc.out.Len() > 0 })
	}
	kc.worker.shard.Call(func() {
		if kc.out.Len() == 0 {
			t.Error("all of it was written")
		}
		before := bytes.Join(kc.out.Pieces(), nil)
		core.Abort()
		clear(mem)
		if !bytes.Equal(bytes.Join(kc.out.Pieces(), nil), before) {
			t.Error("memory that was flushed is still to be written")
		}
	})
	var c [1]verbs.Completion
	if _, err := cq.Wait(context.Background(), c[:]); err != nil ||
		c[0].Status != rdmap.WRFlushErr {
		t.Errorf("%v, status %v, want a flush", err, c[0].Status)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

// answerMPA starts an MPA responder without markers, for one connection, and returns its address. After the start-up
// the responder passes the socket to then, and closes it afterwards.
func answerMPA(t *testing.T, then func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		sock, err := ln.Accept()
		if err != nil {
			return
		}
		defer sock.Close()
		var r startup.Responder
		r.Init(startup.Config{})
		b := make([]byte, 1)
		for r.Stage() != startup.StageDecide {
			if _, err := io.ReadFull(sock, b); err != nil {
				return
			}
			r.Input(b)
		}
		r.Accept(startup.Answer{})
		sock.Write(r.Output())
		then(sock)
	}()
	return netip.MustParseAddrPort(ln.Addr().String())
}
