package daemon_test

import (
	"fmt"
	"testing"
	"time"
)

// TestPeerConnections has a peer reach its limit of connections, and go on when one of them is gone.
func TestPeerConnections(t *testing.T) {
	at := freePort(t)
	kernel(t, fmt.Sprintf("[[export]]\nname = \"x\"\nlisten = %q\nsize = 4096\n[[peer]]\nprefix = \"127.0.0.0/8\"\nconnections = 2\n", at))
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
	if err := first.qp.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if took, ok := eventually(30*time.Second, func() bool { _, err := dialExport(t, at); return err == nil }); !ok {
		t.Errorf("no connection in place of the one that is gone, after %v", took)
	}
}
