package daemon_test

import (
	"fmt"
	"testing"

	"xwarp/engine/daemon/control"
)

// TestPeerConnections: a peer reaches its limit of connections, and can connect again after one of them ends.
func TestPeerConnections(t *testing.T) {
	at := freePort(t)
	d, _ := kernel(t, fmt.Sprintf("[[export]]\nname = \"x\"\nlisten = %q\nsize = "+
		"4096\n[[peer]]\nprefix = \"127.0.0.0/8\"\nconnections = 2\n", at))
	first, err := dialExport(t, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dialExport(t, at); err != nil {
		t.Fatal(err)
	}
	if _, err := dialExport(t, at); err == nil {
		t.Fatal("a third connection of two")
	}
	v := d.Snapshot()
	accounts := map[string]control.PeerState{}
	for _, p := range v.Peers {
		accounts[p.Prefix] = p
	}
	for _, prefix := range []string{"127.0.0.0/8"} {
		if p := accounts[prefix]; p.Connections != 2 || p.Startup != 0 || p.Refused == 0 ||
			v.Counters["peers_refused"] != p.Refused {
			t.Errorf("%s: %+v, %d refused", prefix, p, v.Counters["peers_refused"])
		}
	}
	if err := first.QP.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if took, ok := eventually(func() bool {
		_, err := dialExport(t, at)
		return err == nil
	}); !ok {
		t.Errorf("no connection in place of the closed one, after %v", took)
	}
}
