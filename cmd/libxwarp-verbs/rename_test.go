package libxwarpverbs_test

import (
	"os/exec"
	"testing"
)

// TestRenamedInterface: after an interface was renamed under the daemon, a server that was started before serves a new
// connection, and new programs connect.
func TestRenamedInterface(t *testing.T) {
	a, b := pair(t)
	server := a.start(t, "rping -s -P -v", b)
	a.listening(t, server)
	b.start(t, "rping -c -v -C 2 -a @", a).wait(t)
	var out []byte
	if err := a.do(func() (err error) {
		out, err = exec.Command("ip", "link", "set", "eth0", "name", "lan0").CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.start(t, "rping -c -v -C 2 -a @", a).wait(t)
	other := b.start(t, "rping -s -v -C 2 -p 7175", a)
	b.listening(t, other)
	a.start(t, "rping -c -v -C 2 -p 7175 -a @", b).wait(t)
}
