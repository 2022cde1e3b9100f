package daemon_test

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/client"
)

// TestDescriptorsForTheOperator: peers that open more connections than the daemon has descriptors must not lock out
// programs or the operator. Programs that use up the rest must not lock out the operator.
func TestDescriptorsForTheOperator(t *testing.T) {
	at := listenAddr(t)
	path, socket := writeConfig(t, fmt.Sprintf("clients = 4096\n[limits]\nsessions = 4096\n"+
		"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n[[export]]\nname = \"x\"\n"+
		"listen = %q\nsize = \"4KiB\"\n", at))
	d := start(t, "/proc/self/exe", 0, "daemon", "/proc/self/ns/net", path)
	if got := d.line(); got != "ready" {
		t.Fatal(got)
	}
	if err := unix.Prlimit(d.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 300, Max: 300},
		nil); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var programs []*client.Device
	for {
		dev, err := client.Open(socket)
		if err != nil {
			t.Logf("%d programs, then: %v", len(programs), err)
			break
		}
		defer dev.Close()
		programs = append(programs, dev)
	}
	if len(programs) == 0 {
		t.Error("peers keep programs out")
	}
	operator, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if s, err := operator.Snapshot(t.Context()); err != nil || len(s.Sessions) != len(programs)+1 {
		t.Errorf("the operator sees %d sessions, %v", len(s.Sessions), err)
	}
}
