package daemon_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
)

// TestEventsOfShortProgram: all events of a program that exists only for a moment arrive, in order and with its name:
// those of the session, of its objects, and of its connection.
func TestEventsOfShortProgram(t *testing.T) {
	_, socket := kernel(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watcher, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	r, err := watcher.Events(ctx, nil)
	if err != nil || len(r.Events) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	at := freePort(t)
	responder(t, peer, at, 1)
	dev, err := client.OpenConfig(client.Config{Path: socket, Program: "short"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verbstest.New(t, dev, 4096).Dial(ctx, at); err != nil {
		t.Fatal(err)
	}
	session := dev.Session()
	dev.Close()
	var lines []string
	for !slices.Contains(lines, "del session") {
		next := r.Next
		if r, err = watcher.Events(ctx, &next); err != nil || r.Lost > 0 {
			t.Fatalf("%+v, %v, after %q", r, err, lines)
		}
		for _, e := range r.Events {
			if e.Session != session {
				continue
			}
			line := e.Change + " " + e.Kind
			if e.Change == control.ChangeEvent {
				line = e.Event
			}
			lines = append(lines, line)
			isConn := strings.HasPrefix(e.Event, "RDMA_CM")
			if e.Program != "short" || e.Device != "lo" || e.Pid == 0 || e.Time.IsZero() ||
				(e.QP != 0) != (e.Kind == "qp" || isConn) || isConn && e.Remote != at.String() {
				t.Errorf("%+v", e)
			}
		}
	}
	last := -1
	for _, want := range []string{"new session", "new pd", "new qp", "RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED", "del pd", "del session"} {
		at := slices.Index(lines, want)
		if at <= last {
			t.Errorf("%q is event %d, after %d: %q", want, at, last, lines)
		}
		last = at
	}
	for _, kind := range []string{"pd", "mr", "cq", "qp"} {
		if !slices.Contains(lines, "new "+kind) || !slices.Contains(lines, "del "+kind) {
			t.Errorf("no events of %s: %q", kind, lines)
		}
	}
}
