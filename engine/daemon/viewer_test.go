package daemon_test

import (
	"net/netip"
	"testing"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// TestSnapshotsAreShared: many concurrent requests get few different snapshots, at most one for every four requests.
func TestSnapshotsAreShared(t *testing.T) {
	_, socket := kernel(t, "")
	r := dialRaw(t, socket)
	control.CloseAll(r.hello())
	const n = control.MaxPending - 1
	for range n {
		r.send(control.OpState, "")
	}
	made := map[time.Time]int{}
	begin := time.Now()
	for range n {
		k, body, _, err := r.c.Receive()
		if err != nil || k != control.KindReply {
			t.Fatal(k, err)
		}
		reply, err := control.ParseReply(body)
		if err != nil || reply.Error != nil {
			t.Fatal(err, reply.Error)
		}
		made[snapshotOf(t, &reply).Time]++
	}
	if len(made) > n/4 {
		t.Errorf("%d snapshots for %d requests", len(made), n)
	}
	t.Logf("%d snapshots for %d requests in %v", len(made), n, time.Since(begin))
}

// TestSnapshotIsFresh: a snapshot shows the changes before its request, even if requests come faster than snapshots are
// normally taken.
func TestSnapshotIsFresh(t *testing.T) {
	_, socket := kernel(t, "")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	at := netip.MustParseAddrPort("127.0.0.1:0")
	for i := range 5 {
		if _, err := dev.AllocPD(); err != nil {
			t.Fatal(err)
		}
		l, err := dev.Listen(at, verbs.ListenConfig{Backlog: 1})
		if err != nil {
			t.Fatal(err)
		}
		s, err := dev.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.PDs) != i+1 || len(s.Listeners) != 1 || s.Listeners[0].Addr != l.Addr() {
			t.Errorf("%d domains, listeners %v; want %d, and one at %v", len(s.PDs), s.Listeners,
				i+1, l.Addr())
		}
		l.Close()
	}
}

// TestUnreadSnapshot: a program requests snapshots and reads nothing. Another program of the same user still gets its
// replies.
func TestUnreadSnapshot(t *testing.T) {
	_, socket := kernel(t, "")
	rogue := dialRaw(t, socket)
	control.CloseAll(rogue.hello())
	for range control.MaxPending - 1 {
		rogue.send(control.OpState, "")
	}
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for range 3 {
		if _, err := dev.Snapshot(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
