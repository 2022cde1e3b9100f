package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
)

// sshHost starts an OpenSSH server in its own process, mount and network namespaces, with keys for root and for the
// user alice, who may use sudo. It exits when its standard input is closed, which the kernel does even if the test is
// killed.
const sshHost = `set -e
bin=$1 keys=$2
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/t
cp "$keys"/* /run/t
mount -t tmpfs -o mode=755 tmpfs /usr/local/bin
touch /usr/local/bin/xwarp.test
mount --bind "$bin" /usr/local/bin/xwarp.test
printf '#!/bin/sh\nXWARP_TEST_COMMAND=1 exec /usr/local/bin/xwarp.test "$@"\n' >/usr/local/bin/xwarp
chmod 755 /usr/local/bin/xwarp
mount -t tmpfs -o mode=1777 tmpfs /tmp
cd /run/t
{ grep '^root:' /etc/passwd; echo sshd:x:998:65534::/run/sshd:/usr/sbin/nologin; echo alice:x:997:65534::/tmp:/bin/sh; } >passwd
{ echo 'root:*:1::::::'; echo 'alice:*:1::::::'; } >shadow
{ echo 'root ALL=(ALL) ALL'; echo 'alice ALL=(ALL) NOPASSWD: ALL'; } >sudoers
chmod 644 passwd; chmod 640 shadow; chmod 440 sudoers
for f in passwd shadow sudoers; do mount --bind $f /etc/$f; done
cat >sshd_config <<END
Port 2222
HostKey /run/t/host
AuthorizedKeysFile /run/t/user.pub
PasswordAuthentication no
PidFile none
END
/usr/sbin/sshd -D -e -f sshd_config &
sshd=$!
read end || kill $sshd
`

// sshHosts starts an OpenSSH server on both hosts. It returns a directory for PATH with a program ssh that has their
// keys.
func sshHosts(t *testing.T, n *topo.Net) string {
	t.Helper()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	must(t, os.Mkdir(keys, 0o700))
	for _, name := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(keys, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v (scripts/setup.sh test installs OpenSSH)\n%s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(keys, "host.pub"))
	must(t, err)
	config := fmt.Sprintf("Port 2222\nIdentityFile %[1]s/user\nIdentitiesOnly yes\n"+
		"UserKnownHostsFile %[2]s/known\n", keys, dir)
	must(t, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "known"), fmt.Appendf(nil, "* %s", public), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ssh"), fmt.Appendf(nil,
		"#!/bin/sh\nexec /usr/bin/ssh -F %s/config \"$@\"\n", dir), 0o755))
	for _, h := range []*topo.Host{n.A, n.B} {
		c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
			"sh", "-c", sshHost, "sh", os.Args[0], keys)
		var said bytes.Buffer
		c.Stdout, c.Stderr = &said, &said
		in, err := c.StdinPipe()
		must(t, err)
		must(t, h.Do(c.Start))
		t.Cleanup(func() {
			in.Close()
			if err := c.Wait(); err != nil || t.Failed() {
				t.Logf("sshd: %v\n%s", err, &said)
			}
		})
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// overSSH runs a command on host A, with the directory of sshHosts in PATH.
func overSSH(t *testing.T, n *topo.Net, dir, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // the script then cleans up
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	must(t, n.A.Do(c.Start))
	err := c.Wait()
	return out.String(), err
}

// TestNICCheckSSH runs nic-check over OpenSSH, as root and as a user with sudo. The script runs on host A, so the
// session with B uses the tested link. Afterwards both hosts must be unchanged.
func TestNICCheckSSH(t *testing.T) {
	needs.Long(t)
	n := hosts(t, topo.NoOffloads, topo.NoOffloads)
	dir := sshHosts(t, n)
	a, b := n.A.Addr4.Addr().String(), n.B.Addr4.Addr().String()
	state := func() (all string) {
		for _, at := range []string{a, b} {
			out, err := overSSH(t, n, dir, filepath.Join(dir, "ssh"), "-o", "ConnectionAttempts=30",
				"root@"+at, "ip -o link show eth0; ip -4 route; ip -6 route show proto static; "+
					"ip -6 -o addr show eth0 scope global; ls -A /tmp; pgrep -a xwarp.test; true")
			if err != nil {
				t.Fatalf("%s: %v\n%s", at, err, out)
			}
			all += out
		}
		return regexp.MustCompile(` qlen \d+| tentative`).ReplaceAllString(all, "")
	}
	far := func(h *topo.Host, to string, via netip.Addr) {
		must(t, h.Netlink().RouteAdd(&netlink.Route{Dst: mustCIDR(t, to), Gw: via.AsSlice(),
			Protocol: unix.RTPROT_STATIC}))
	}
	far(n.A, "198.51.100.0/24", n.B.Addr4.Addr())
	far(n.A, "2001:db8:77::/48", n.B.Addr6.Addr())
	before := state()
	for _, as := range []struct {
		user  string
		flags []string
		steps []string
	}{
		{"root", []string{"-m", "1400", "-o", "cp send_lat"}, []string{
			"doctor --fix, a", "doctor --fix, b", "cp there / back, MTU 1400, copy", "send_lat"}},
		{"alice", []string{"-s", "-o", "link"}, []string{"doctor --fix, a", "doctor --fix, b",
			"link of a down for 2 s during cp"}},
	} {
		reports := t.TempDir()
		args := append(as.flags, "-n", "2", "-t", "1", "-r", reports, as.user+"@"+a, "eth0", a,
			as.user+"@"+b, "eth0", b)
		out, err := overSSH(t, n, dir, "../../scripts/nic-check", args...)
		if err != nil {
			t.Errorf("%s: %v", as.user, err)
		}
		for _, step := range as.steps {
			if !line(out, "ok", step) {
				t.Errorf("%s: %s is not ok", as.user, step)
			}
		}
		if as.user == "alice" && !line(out, "none", "link of b down for 2 s during cp") {
			t.Error("the link of the session went down")
		}
		for _, end := range []string{"a.json", "b.json"} {
			if text, err := os.ReadFile(filepath.Join(reports, end)); err != nil ||
				!json.Valid(text) {
				t.Errorf("report %s: %v: %s", end, err, text)
			}
		}
		t.Logf("%s:\n%s", as.user, out)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("the hosts are not as before:\n%s", diff)
	}
	out, err := overSSH(t, n, dir, "../../scripts/nic-check", "-x", "xwarp-2", "-r", t.TempDir(),
		"root@"+a, "eth0", a, "root@"+b, "eth0", b)
	if err == nil || !strings.HasPrefix(out, "FAILED  begin on root@"+a) ||
		!strings.Contains(out, "xwarp-2 not found in ") {
		t.Errorf("without xwarp there: %v: %s", err, out)
	}
}

func mustCIDR(t *testing.T, s string) *net.IPNet {
	t.Helper()
	_, p, err := net.ParseCIDR(s)
	must(t, err)
	return p
}
