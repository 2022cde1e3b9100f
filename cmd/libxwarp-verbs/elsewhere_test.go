package libxwarpverbs_test

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestOtherNamespace runs a program in another network namespace than that of its daemon. The device must have its GUID
// but no interface index, although the program's namespace has an interface with the index of the daemon's. The program
// checks that rdma_bind_addr fails for the address of that interface.
func TestOtherNamespace(t *testing.T) {
	a, b := pair(t)
	b.daemon.Close()
	other, address := "lan0", b.addr
	lines := []string{"link set eth0 name lan0"}
	if index := a.host.Link.Index; index != b.host.Link.Index {
		other, address = "lan1", "198.51.100.1"
		lines = append(lines,
			"link add lan1 index "+strconv.Itoa(index)+" type veth peer name lan2",
			"addr add "+address+"/24 dev lan1")
	}
	for _, line := range append(lines, "link set "+other+" up") {
		if err := b.do(func() error {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	e := *a
	e.host = b.host
	m := a.host.Link.MAC
	want := fmt.Sprintf("guid %02x%xfffe%x index 0 of GID 0", m[0]^2, []byte(m[1:3]), []byte(m[3:]))
	if out := e.start(t, own(t, "elsewhere")+" "+address, a).wait(t); !strings.Contains(out, want) {
		t.Errorf("want %q in\n%s", want, out)
	}
}
