package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/scripts/lab/vm"
)

// TestXFRM runs the tests of the IPsec client on Debian's kernel, which has ESP.
func TestXFRM(t *testing.T) {
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.Need(t)
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "xfrm.test"),
		"xwarp/engine/host/xfrm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m, err := vm.Start(t.Context(), vm.Options{Share: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out, code, err := m.Run("cd /tmp && "+vm.SharePath+"/xfrm.test -test.v", 5*time.Minute)
	if err != nil || code != 0 || !strings.Contains(out, "--- PASS: TestTakesSAs") ||
		strings.Contains(out, "--- SKIP") {
		t.Errorf("exit status %d, %v\n%s", code, err, out)
	}
}
