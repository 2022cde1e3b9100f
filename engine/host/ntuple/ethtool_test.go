package ntuple

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

// TestEthtool compares our commands with those that ethtool(8) sends to the kernel for the same arguments.
func TestEthtool(t *testing.T) {
	shim := filepath.Join(t.TempDir(), "shim.so")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", shim, "testdata/shim.c").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v (scripts/setup.sh test installs gcc)\n%s", err, out)
	}
	del := &rxnfc{cmd: unix.ETHTOOL_SRXCLSRLDEL}
	del.fs.location = 14
	for _, c := range []struct {
		words, env string
		ours       []byte
	}{
		{"-N eth9 flow-type tcp4 dst-port 7174 action 5", "", insertion(Rule{DstPort: 7174,
			Queue: 5}, 14).encode()},
		{"-N eth9 flow-type tcp4 src-port 7174 action 63", "SPECIAL=1", insertion(Rule{
			SrcPort: 7174, Queue: 63}, locAny).encode()},
		{"-N eth9 flow-type tcp6 dst-port 65535 action 0", "SPECIAL=1", insertion(Rule{V6: true,
			DstPort: 65535}, locAny).encode()},
		{"-N eth9 flow-type tcp6 src-port 1 context 3", "", insertion(Rule{V6: true, SrcPort: 1,
			Context: 3}, 14).encode()},
		{"-N eth9 flow-type tcp4 dst-port 7174 context 1", "SPECIAL=1", insertion(Rule{
			DstPort: 7174, Context: 1}, locAny).encode()},
		{"-N eth9 delete 14", "", del.encode()},
		{"-X eth9 context new start 4 equal 4", "", creation(spread(8, []int{4, 5, 6, 7}))},
		{"-X eth9 context 3 delete", "", deletion(3)},
		{"-X eth9 equal 4", "OLD=1", setIndirection(spread(8, []int{0, 1, 2, 3}))},
		{"-X eth9 default", "OLD=1", setIndirection(nil)},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/usr/sbin/ethtool", strings.Fields(c.words)...)
		cmd.Env = []string{"LD_PRELOAD=" + shim, c.env}
		cmd.ExtraFiles = []*os.File{w}
		out, err := cmd.CombinedOutput()
		w.Close()
		text := make([]byte, 4096)
		n, _ := r.Read(text)
		r.Close()
		theirs, e := hex.DecodeString(strings.TrimSpace(string(text[:n])))
		if err != nil || e != nil || n == 0 {
			t.Fatalf("ethtool %s: %v, %v (scripts/setup.sh test installs it): %s", c.words, err,
				e, out)
		}
		if diff := cmp.Diff(meant(theirs), meant(c.ours)); diff != "" {
			t.Errorf("ethtool %s gives the kernel, and we:\n%s", c.words, diff)
		}
	}
}

// meant clears the fields of an rxnfc that the kernel does not read: ethtool leaves bytes of its stack there. fs is at
// offset 16.
func meant(b []byte) []byte {
	cmd := ethtool.Word(b, 0)
	if cmd != unix.ETHTOOL_SRXCLSRLINS && cmd != unix.ETHTOOL_SRXCLSRLDEL {
		return b
	}
	const location = 16 + 160
	clear(b[8:16])            // data
	clear(b[16+148 : 16+152]) // padding
	clear(b[location+4:][:4]) // padding
	clear(b[ruleLocs:])       // padding
	if cmd == unix.ETHTOOL_SRXCLSRLDEL {
		clear(b[4:location])
	}
	if cmd == unix.ETHTOOL_SRXCLSRLDEL || ethtool.Word(b, 4)&flowRSS == 0 {
		clear(b[ruleLocs-4:]) // rss_context
	}
	return b
}
