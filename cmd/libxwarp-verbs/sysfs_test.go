package libxwarpverbs_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
)

// TestSysfs runs programs that look for devices below /sys/class/infiniband: each kind of call that leads there.
func TestSysfs(t *testing.T) {
	a, _ := pair(t)
	v4 := netip.MustParseAddr(a.addr).As4()
	gid := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%x:%x", v4[:2], v4[2:])
	const tree = "/sys/class/infiniband"
	for _, c := range []struct{ style, line, want string }{
		{"roce", "ibstat -l", "xwarp_eth0"},
		{"roce", "ibstat", "State: Active"},
		{"roce", "ibstatus", "default gid:\t " + gid},
		{"roce", "ls -l " + tree, "xwarp_eth0"},
		{"roce", "grep -r . " + tree, "gid_attrs/types/0:RoCE v2"},
		{"roce", "find " + tree + " -name types", "ports/1/gid_attrs/types"},
		{"roce", "test -r " + tree + "/xwarp_eth0/node_guid", ""},
		{"roce", "readlink -f " + tree + "/xwarp_eth0", "xwarp_eth0"},
		{"roce", "cat " + tree + "/xwarp_eth0/ports/1/gid_attrs/ndevs/0", "eth0"},
		{"iwarp", "cat " + tree + "/xwarp_eth0/node_type", "4: RNIC"},
		{"iwarp", "/usr/bin/python3 -c import(os);print(os.listdir('" + tree + "'))",
			"['xwarp_eth0']"},
		{"iwarp", "bash -c cat<" + tree + "/xwarp_eth0/ports/1/state", "4: ACTIVE"},
	} {
		t.Run(c.line, func(t *testing.T) {
			e := *a
			e.env = append(e.env, "XWARP_STYLE="+c.style)
			words := strings.Fields(c.line)
			for i, w := range words {
				words[i] = strings.NewReplacer("import(os)", "import os",
					"cat<", "cat <").Replace(w)
			}
			p := e.startWords(t, words, a)
			if out := p.wait(t); !strings.Contains(out, c.want) {
				t.Errorf("no %q in\n%s", c.want, out)
			}
		})
	}
	a.daemon.Close()
	if _, err := os.Stat(control.SysfsPath(a.socket)); !os.IsNotExist(err) {
		t.Errorf("the files are left after the end of the daemon: %v", err)
	}
}

// TestFilesWhileLoading has a program look at files for the first time while another thread of it loads a library.
func TestFilesWhileLoading(t *testing.T) {
	a, _ := pair(t)
	lib := filepath.Join(dir, "libloading.so")
	if err := os.Rename(own(t, "loading", "-DLIBRARY", "-shared", "-fPIC"), lib); err != nil {
		t.Fatal(err)
	}
	line := own(t, "loading", "-rdynamic") + " " + lib
	if out := a.start(t, line, a).wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
}
