package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"xwarp/bpf/needs"
)

// anybody is the user and group ID of an unprivileged user without a home directory.
const anybody = 65534

// TestTarball unpacks the tarball and runs the commands of CI.md with it, as an unprivileged user. These commands test
// a project, for which the test has a Makefile whose check connects an rping client to an rping server.
func TestTarball(t *testing.T) {
	needs.Long(t)
	if *debFlag != "" {
		t.Skip("-deb names a package that was built elsewhere")
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(debDirectory, "*.tar.gz"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v: not one tarball", list, err)
	}
	dir, err := os.MkdirTemp("", "xwarp-tarball")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const check = "check:\n\trping -s -C 3 & sleep 1; rping -c -v -C 3 -a 127.0.0.1; wait\n"
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(check), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", dir, "-xzf", list[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile("../../cmd/libxwarp-verbs/CI.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`xwarp/bin/xwarp run .*`).FindAllString(string(page), -1)
	if len(commands) < 4 {
		t.Fatalf("the page has the commands %q only", commands)
	}
	for _, command := range commands {
		c := exec.Command("sh", "-c", command)
		c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
		c.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: anybody, Gid: anybody}}
		want := "ping data: rdma-ping-2"
		if strings.HasSuffix(command, "ibv_devinfo") {
			want = "xwarp_lo"
		}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, no %q in\n%s", command, err, want, out)
		}
	}
}
