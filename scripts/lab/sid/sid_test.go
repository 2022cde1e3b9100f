// Package sid runs programs of Debian sid over the library of xwarp run, in a root file system made by build.sh. The
// rdma-core there is newer than the one with which the library is built.
package sid

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/scripts/lab/vm"
)

const repository = "../../.."

// build builds xwarp, xwarpd and the library of xwarp run into a new directory.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, c := range []*exec.Cmd{
		exec.Command("go", "build", "-o", dir, "./cmd/xwarp", "./cmd/xwarpd"),
		exec.Command("cmd/libxwarp-verbs/build.sh", filepath.Join(dir, "libxwarp-verbs.so")),
	} {
		c.Dir = repository
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	return dir
}

// enter is a script that enters the root directory $1, with the programs of $2 in /opt, and runs the script $3 there.
// It runs as root in new namespaces.
const enter = `set -e
root=$1
mount --bind "$2" "$root/opt"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
ip link set lo up
exec chroot "$root" /usr/bin/env PATH=/opt:/usr/sbin:/usr/bin sh -c "$3"`

// patience is the timeout of a script, which takes a few seconds on an idle machine.
const patience = 3 * time.Minute

func run(t *testing.T, root, dir, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
		"sh", "-c", enter, "enter", root, dir, script)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return string(out)
}

// pairOf returns a script that runs a server in the background and then its client, and fails if either fails.
func pairOf(server, client string) string {
	return server + " & sleep 1; " + client + " && wait $!"
}

// valkey is a script that runs the test of Valkey's RDMA module against a server.
const valkey = `cd /usr/src/valkey-module
src/valkey-server --port 0 --save "" --dir /tmp --loadmodule $PWD/src/valkey-rdma.so \
	--rdma-port 6379 --rdma-bind 127.0.0.1 >/tmp/log &
for i in $(seq 100); do
	grep -q "Ready to accept connections" /tmp/log && break
	sleep 0.2
done
tests/rdma/rdma-test --thread 4 -h 127.0.0.1
status=$?
kill $!
wait
cat /tmp/log
exit $status`

// valkeyRun is Valkey's own script for the test: it finds the device in sysfs.
const valkeyRun = "python3 /usr/src/valkey-yes/tests/rdma/run.py"

// TestProgramsOfSid runs programs of the newest rdma-core in both styles of xwarp run: as an iWARP and as a RoCE
// device.
func TestProgramsOfSid(t *testing.T) {
	root, dir := vm.Sid(t), build(t)
	const pingpong, writeBW = "ibv_rc_pingpong -g 0 -n 100 -c", "ib_write_bw -n 100"
	const rping, rstream = "rping -v -C 3", "rstream -T v -S 64 -C 300"
	const iterations = `iters in .* seconds = `
	const figures = `#bytes +#iterations.*\n *\d+ +\d+ +\d.*\n---`
	for _, c := range []struct{ style, script, want string }{
		{"iwarp", "ibv_devinfo -v", `hca_id:\s+xwarp_lo(.*\n)*.*effective_speed:\s+10.0 Gbps`},
		{"roce", "ibv_devinfo -v", `hca_id:\s+xwarp_lo(.*\n)*.*GID\[ +0\]:.*RoCE v2`},
		{"iwarp", "ibstat -l", ``}, // ibstat does not list iWARP devices
		{"roce", "ibstat", `(?m)CA 'xwarp_lo'(.*\n)*.*Rate: 10$`},
		{"iwarp", pairOf(rping+" -s", rping+" -c -a 127.0.0.1"), `rdma-ping-2: CDEF`},
		{"roce", pairOf(rping+" -s", rping+" -c -a 127.0.0.1"), `rdma-ping-2: CDEF`},
		{"roce", pairOf(pingpong, pingpong+" 127.0.0.1"), iterations},
		{"roce", pairOf("ibv_srq_pingpong -g 0", "ibv_srq_pingpong -g 0 127.0.0.1"), iterations},
		{"roce", pairOf(writeBW, writeBW+" 127.0.0.1"), figures},
		{"iwarp", pairOf("ib_send_lat -R -n 100", "ib_send_lat -R -n 100 127.0.0.1"), figures},
		{"iwarp", pairOf(rstream, rstream+" -s 127.0.0.1"), `custom +\d`},
		{"iwarp", valkey, `Valkey Over RDMA test \[OK\]`},
		{"roce", valkey, `Valkey Over RDMA test \[OK\]`},
		{"iwarp", valkeyRun, `Valkey Over RDMA test over 127.0.0.1 \[OK\]`},
		{"roce", valkeyRun, `Valkey Over RDMA test over 127.0.0.1 \[OK\]`},
	} {
		name, _, _ := strings.Cut(c.script, "\n")
		t.Run(c.style+" "+name, func(t *testing.T) {
			script := "xwarp run --local --style " + c.style + " -- sh -c '" + c.script + "'"
			if out := run(t, root, dir, script); !regexp.MustCompile(c.want).MatchString(out) {
				t.Errorf("no %s in\n%s", c.want, out)
			}
		})
	}
}

// TestLibraryHasFunctionsOfSid checks that each public function of the newest rdma-core is in the library of xwarp run
// or in the list of functions that are left to rdma-core.
func TestLibraryHasFunctionsOfSid(t *testing.T) {
	root, dir := vm.Sid(t), build(t)
	text, err := os.ReadFile(filepath.Join(repository, "cmd/libxwarp-verbs/testdata/left.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(text))
	for name := range functions(t, filepath.Join(dir, "libxwarp-verbs.so")) {
		known = append(known, name)
	}
	for _, library := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		path := filepath.Join(root, "usr/lib/x86_64-linux-gnu", library)
		for name, version := range functions(t, path) {
			if !slices.Contains(known, name) && !strings.Contains(version, "PRIVATE") {
				t.Errorf("%s has %s of version %s: add it to lib/exports.map and lib/refuse.c of "+
					"cmd/libxwarp-verbs, or to testdata/left.txt if it uses no object", library,
					name, version)
			}
		}
	}
}

// functions returns the functions that a shared object defines, with their symbol versions.
func functions(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, s := range list {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			versions[s.Name] = s.Version
		}
	}
	return versions
}
