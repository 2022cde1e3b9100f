// Package dispatcher tests xwarpd beside Debian's XDP programs, which libxdp's dispatcher joins on one interface. The
// tests run in a virtual machine, because the container of make test may not load BPF programs of type EXT, which the
// dispatcher needs.
package dispatcher

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/scripts/lab/vm"
)

const (
	patience = 3 * time.Minute // time limit of a command: the emulated machine is slow
	another  = "/usr/lib/x86_64-linux-gnu/bpf/xdpfilt_alw_udp.o"
	config   = `[daemon]
socket = "/run/xwarp/control.sock"
grace = "10s"
[[interface]]
name = "v0"
[[export]]
name = "lab"
listen = "0.0.0.0:7174"
serve = "directory"
path = "/tmp/served"
`
	loadFilter = "xdp-filter load v0 -f all -p allow; xdp-filter ip 192.0.2.9 -m src"
	prepare    = `mount -t bpf bpf /sys/fs/bpf
mkdir -p /tmp/served /run/xwarp
modprobe veth
ip netns add peer
ip link add v0 type veth peer name v1 netns peer
ip link set v0 up
ip addr add 192.0.2.1/24 dev v0
ip -n peer link set lo up
ip -n peer link set v1 up
ip -n peer addr add 192.0.2.2/24 dev v1
ip -n peer addr add 192.0.2.9/24 dev v1
cat >/tmp/xwarp.toml <<'TOML'
` + config + `TOML
head -c 300000 /dev/urandom >/tmp/data
`
)

// host is the virtual machine. xwarpd uses one end of its veth pair, v0; the other end is in the namespace peer.
type host struct {
	t *testing.T
	m *vm.VM
	// What xdp-loader shows of each program apart from its number: the priority and the chain call actions.
	settings map[string]string
}

func start(t *testing.T, prepareTools func(t *testing.T, share string) string) *host {
	vm.NeedNewest(t)
	dir := t.TempDir()
	enter := prepareTools(t, dir)
	build := exec.Command("go", "build", "-o", dir, "xwarp/cmd/xwarp", "xwarp/cmd/xwarpd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, err := vm.Start(t.Context(), vm.Options{Newest: true, NoSiw: true, Share: dir,
		MemoryMiB: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &host{t, m, map[string]string{}}
	h.run(prepare)
	h.run(enter)
	return h
}

// stable leaves the machine with its own xdp-tools, of the lab's Debian release.
func stable(*testing.T, string) string { return "true" }

// sid puts xdp-tools of Debian sid and their libraries into the share. It returns a script that makes the machine use
// them.
func sid(t *testing.T, share string) string {
	script := `set -e
chroot $1 dpkg-query -W libxdp1
mkdir $2/sid
chroot $1 sh -c 'tar -ch /usr/lib/x86_64-linux-gnu/bpf $(
	for p in /usr/sbin/xdp-loader /usr/sbin/xdp-filter; do echo $p; ldd $p; done | grep -o "/[^ ]*" | sort -u)' |
	tar -x -C $2/sid`
	out, err := exec.Command("sh", "-c", script, "sh", vm.Sid(t), share).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	return "cp -a " + vm.SharePath + `/sid /opt/sid
for d in proc sys run tmp; do
	mkdir /opt/sid/$d
	mount --rbind /$d /opt/sid/$d
done
for p in xdp-loader xdp-filter; do
	printf '#!/bin/sh\nexec chroot /opt/sid /usr/sbin/'$p' "$@"\n' >/usr/sbin/$p
done`
}

// try runs a script and returns its output and whether it succeeded.
func (h *host) try(script string) (string, bool) {
	h.t.Helper()
	out, code, err := h.m.Run("set -e\nPATH=$PATH:"+vm.SharePath+"\n"+script, patience)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Logf("$ %s\n%s[%d]", script, out, code)
	return out, code == 0
}

func (h *host) run(script string) string {
	h.t.Helper()
	out, ok := h.try(script)
	if !ok {
		h.t.Fatal("the script failed")
	}
	return out
}

// daemon starts xwarpd and waits until it serves.
func (h *host) daemon() *vm.Process { return h.daemonBy("") }

// daemonBy is like daemon, but puts command in front of the command line of xwarpd.
func (h *host) daemonBy(command string) *vm.Process {
	h.t.Helper()
	p, err := h.m.Spawn("exec " + command + " " + vm.SharePath + "/xwarpd -config /tmp/xwarp.toml")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("xwarpd: %s", p.Output())
		}
	})
	if _, ok := h.try(fmt.Sprintf("until xwarp status; do kill -0 %d; sleep 0.2; done",
		p.Pid())); !ok {
		h.t.Fatalf("xwarpd does not serve: %s", p.Output())
	}
	return p
}

func (h *host) stop(p *vm.Process, sig syscall.Signal) {
	h.t.Helper()
	if err := p.Signal(sig); err != nil {
		h.t.Fatal(err)
	}
	if _, err := p.Wait(patience); err != nil {
		h.t.Fatal(err)
	}
}

// members waits until xdp-loader shows exactly these programs on v0, in this order, with the settings that it showed
// when they came. Without arguments it waits until there is no program.
func (h *host) members(want ...string) {
	h.t.Helper()
	var got []string
	for end := time.Now().Add(patience); ; {
		got = nil
		status := h.run("xdp-loader status v0")
		for _, m := range memberLine.FindAllStringSubmatch(status, -1) {
			name, settings := m[2], m[1]+" "+m[3]
			got = append(got, name)
			if before := h.settings[name]; before != "" && before != settings {
				h.t.Errorf("%s has the priority and actions %s, and had %s", name, settings, before)
			}
			h.settings[name] = settings
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	h.t.Fatalf("xdp-loader shows %v, want %v", got, want)
}

// memberLine matches a program in the output of xdp-loader status: its priority, name and chain call actions.
var memberLine = regexp.MustCompile(`(?m)^ => +(\d+) +(\S+) .* (\S+) *$`)

// filters checks that xdp-filter drops packets of 192.0.2.9 and that the kernel answers 192.0.2.2.
func (h *host) filters() {
	h.t.Helper()
	h.run("ip netns exec peer ping -c 1 -W 20 -I 192.0.2.2 192.0.2.1")
	if _, ok := h.try("ip netns exec peer ping -c 1 -W 2 -I 192.0.2.9 192.0.2.1"); ok {
		h.t.Error("xdp-filter does not drop")
	}
}

// transfers checks that xwarpd receives a file.
func (h *host) transfers() {
	h.t.Helper()
	h.run("rm -f /tmp/served/*; ip netns exec peer xwarp cp --transport kernel /tmp/data 192.0.2.1:/\n" +
		"cmp /tmp/data /tmp/served/data")
}

// refuses checks that the kernel answers a SYN to the port of the export by a RST, because xwarpd does not serve it.
func (h *host) refuses() {
	h.t.Helper()
	out, ok := h.try("ip netns exec peer timeout 30 bash -c '</dev/tcp/192.0.2.1/7174'")
	if ok || !strings.Contains(out, "refused") {
		h.t.Errorf("the kernel does not answer for the port of xwarpd: %s", out)
	}
}

// doctor checks that xwarp doctor prints want for v0.
func (h *host) doctor(want string) {
	h.t.Helper()
	if out, _ := h.try("xwarp doctor --interface v0"); !strings.Contains(out, want) {
		h.t.Errorf("doctor does not say %q: %s", want, out)
	}
}

// TestBesideFilter runs with xdp-tools of two releases of Debian, so with two of libxdp.
func TestBesideFilter(t *testing.T) {
	t.Run("stable", func(t *testing.T) { besideFilter(t, start(t, stable)) })
	t.Run("sid", func(t *testing.T) { besideFilter(t, start(t, sid)) })
}

func besideFilter(t *testing.T, h *host) {
	h.run(loadFilter)
	h.filters()

	t.Log("xwarp joins")
	p := h.daemon()
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.filters()
	h.transfers()

	t.Log("another program comes and goes")
	h.run("xdp-loader load -m native v0 " + another)
	h.members("xdpfilt_alw_all", "xdpfilt_alw_udp", "xwarp_steer")
	h.transfers()
	h.run("xdp-loader unload v0 -i $(xdp-loader status v0 | awk '$3 == \"xdpfilt_alw_udp\" { print $4 }')")
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.filters()
	h.transfers()

	t.Log("xdp-filter leaves and returns")
	h.run("xdp-filter unload v0")
	h.members("xwarp_steer")
	h.transfers()
	h.run(loadFilter)
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.filters()
	h.transfers()

	t.Log("xwarp leaves")
	h.stop(p, syscall.SIGTERM)
	h.members("xdpfilt_alw_all")
	h.filters()
	h.refuses()

	t.Log("xwarp is killed")
	p = h.daemon()
	h.transfers()
	h.stop(p, syscall.SIGKILL)
	h.members("xdpfilt_alw_all")
	h.filters()
	h.refuses()

	t.Log("xwarp and the process that leaves for it are killed")
	p = h.daemon()
	h.run(fmt.Sprintf("kill -9 $(pgrep -f ^xwarp-dispatcher) %d", p.Pid()))
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.filters()
	h.refuses()
	h.doctor("a killed xwarp left its program in libxdp's dispatcher of v0")

	t.Log("the next xwarp removes what is left")
	p = h.daemon()
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.transfers()
	for _, after := range []string{"0.02", "0.1", "0.2", "0.4"} {
		h.run("timeout -s KILL " + after + " xdp-loader load -m native v0 " + another +
			" || true\n" +
			"find /run -name '*xdp*.lck' -delete") // xdp-loader's own lock file
		h.run("xdp-loader status v0 | grep xdpfilt_alw_all\n" +
			"xdp-loader status v0 | grep xwarp_steer")
		h.filters()
		h.transfers()
	}
	h.stop(p, syscall.SIGTERM)
	h.run("xdp-loader status v0 | grep xdpfilt_alw_all\n! xdp-loader status v0 | grep xwarp_steer")

	t.Log("all programs are unloaded while xwarp runs")
	p = h.daemon()
	h.run("xdp-loader unload v0 --all")
	h.run("for i in $(seq 300); do ! ip link show v0 | grep 'prog/xdp' || break; sleep 0.1; done\n" +
		"xdp-loader status v0")
	h.transfers()
	h.doctor("xwarp is attached to v0")
	if out, ok := h.try("xdp-filter load v0 -f all -p allow"); ok {
		t.Errorf("xdp-filter replaces an xwarp that is attached alone: %s", out)
	}
	h.transfers()
	h.stop(p, syscall.SIGTERM)
	h.members()
	h.run("! ls /sys/fs/bpf/ | grep xwarp")
}

// TestOneBuffer: beside a program that does not support frames of several buffers, xwarpd joins, serves and says so.
func TestOneBuffer(t *testing.T) {
	h := start(t, stable)
	h.run("sed 's/xdp\\.frags/xdp\\x00frags/' " + another + " >/tmp/one.o\n" + // libxdp goes by the section's name
		"xdp-loader load -m native v0 /tmp/one.o")
	p := h.daemon()
	h.members("xdpfilt_alw_udp", "xwarp_steer")
	h.transfers()
	h.stop(p, syscall.SIGTERM)
	h.members("xdpfilt_alw_udp")
	if !strings.Contains(p.Output(), "xdpfilt_alw_udp (priority 10) does not support more") {
		t.Errorf("xwarpd printed %s", p.Output())
	}
}

// TestUnitCapabilities checks that xwarpd with the capabilities of the packaged unit, which do not suffice to join a
// dispatcher, says so. With the additional capability that OPERATING.md describes it joins.
func TestUnitCapabilities(t *testing.T) {
	h := start(t, stable)
	h.run("xdp-filter load v0 -f all -p allow")
	packaged := unitCapabilities(t)
	out, _ := h.try("timeout 60 " + packaged + " xwarpd -config /tmp/xwarp.toml 2>&1")
	if !strings.Contains(out, "only as root with CAP_SYS_ADMIN") {
		t.Errorf("xwarpd does not say what it lacks: %s", out)
	}
	p := h.daemonBy(strings.ReplaceAll(packaged, "-all", "-all,+sys_admin"))
	h.members("xdpfilt_alw_all", "xwarp_steer")
	h.transfers()
	h.stop(p, syscall.SIGTERM)
	h.members("xdpfilt_alw_all")
}

// unitCapabilities returns a command prefix that runs a program as root with the capabilities and the memory limit of
// the packaged unit.
func unitCapabilities(t *testing.T) string {
	unit, err := os.ReadFile("../../package/xwarpd.service")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	if !found {
		t.Fatal("the unit has no CapabilityBoundingSet")
	}
	line, _, _ := strings.Cut(after, "\n")
	set := "-all"
	for _, c := range strings.Fields(line) {
		set += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	return "prlimit --memlock=unlimited setpriv --no-new-privs --bounding-set=" + set
}
