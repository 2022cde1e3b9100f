package xdp_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// TestDelayedStartup exchanges messages in streaming mode, as in figure 9 of RFC 5044, and starts MPA after the last
// one. Then the stream accepts no more bytes, and the queue pair owns the connection.
//
//req:rfc5044-7.1-1 rfc5044-7.1.4-1
func TestDelayedStartup(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, nil)
	a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ln, err := db.ListenStream(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7175), 0,
		xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			<-ln.Changed()
			s, err := ln.Accept()
			if err != nil {
				return err
			}
			c := xdp.NewNetConn(s)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			hello := make([]byte, 5)
			if _, err := io.ReadFull(c, hello); err != nil {
				return err
			}
			if _, err := c.Write([]byte("the last streaming message")); err != nil {
				return err
			}
			r, err := db.AwaitRequest(ctx, s, nil)
			if err != nil {
				return err
			}
			return r.Accept(ctx, b.QP, nil)
		}()
	}()
	c, err := da.DialStream(ctx, ln.Addr(), xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	last := make([]byte, len("the last streaming message"))
	if _, err := io.ReadFull(c, last); err != nil {
		t.Fatal(err)
	}
	if err := da.Upgrade(ctx, c.Stream(), a.QP, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("too late")); err == nil {
		t.Error("the stream accepts bytes after MPA started")
	}
	if err := c.Close(); err != nil { // the connection belongs to the queue pair now
		t.Error(err)
	}
	verbstest.Exercise(t, a, b)
}

// TestUpgradeOfConnectedQP upgrades a stream with a queue pair that is connected already. The connection goes on.
func TestUpgradeOfConnectedQP(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, nil)
	a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	ln, err := db.ListenStream(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7175), 0,
		xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := da.DialStream(ctx, ln.Addr(), xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := da.Upgrade(ctx, c.Stream(), a.QP, nil, nil); !errors.Is(err, verbs.ErrHasConn) {
		t.Fatalf("Upgrade: %v", err)
	}
	select {
	case <-a.QP.Done():
		t.Fatalf("the connection ended: %v", a.QP.Err())
	default:
	}
	verbstest.Exercise(t, a, b)
}
