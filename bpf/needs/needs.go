// Package needs skips privileged tests that this kernel cannot run, because it lacks a facility. Any other obstacle
// (privileges, limits, leftovers of a previous run) fails the test, so that a passing run proves that the tests ran. In
// a short run it also skips tests that take long.
package needs

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hasFrags is BPF_F_XDP_HAS_FRAGS of linux/bpf.h, the flag of programs in SEC("xdp.frags").
const hasFrags = 1 << 5

// Long skips a test that takes long if go test runs with -short, as make test does. make test-all runs it.
// scripts/LONG.md lists these tests.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs this")
	}
}

// XDP needs a kernel that loads multi-buffer XDP programs (Linux 5.18).
func XDP(t testing.TB) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "needs_xdp",
		Type:         ebpf.XDP,
		Flags:        hasFrags,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		License:      "Apache-2.0",
	})
	if err == nil {
		prog.Close()
	}
	skipOrFail(t, "multi-buffer XDP programs", err, unix.EINVAL, unix.ENOSYS, ebpf.ErrNotSupported)
}

// XSK needs a kernel with AF_XDP sockets. It sets an option, because user-mode emulation creates such sockets but lacks
// their options.
func XSK(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 64)
		unix.Close(fd)
	}
	skipOrFail(t, "AF_XDP sockets", err, unix.EAFNOSUPPORT, unix.ENOPROTOOPT)
}

// NetNS needs network namespaces, veth pairs and the privileges to create them. Those that it creates end with its
// thread.
func NetNS(t testing.TB) {
	t.Helper()
	done := make(chan error)
	go func() {
		// The thread stays in its new namespace, so it must end with the goroutine: no UnlockOSThread.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "needs0"},
			PeerName: "needs1"})
	}()
	skipOrFail(t, "network namespaces with veth", <-done, unix.EINVAL, unix.EOPNOTSUPP)
}

// ESP needs a kernel with IPsec, to which SAs with AES-GCM can be added. The SA that it adds is in a new network
// namespace, which ends with the thread.
func ESP(t testing.TB) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // as in NetNS
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- netlink.XfrmStateAdd(&netlink.XfrmState{Src: net.IPv4(192, 0, 2, 1),
			Dst: net.IPv4(192, 0, 2, 2), Proto: netlink.XFRM_PROTO_ESP, Spi: 0x1001,
			Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20),
				ICVLen: 128}})
	}()
	skipOrFail(t, "IPsec ESP with AES-GCM", <-done, unix.ENOSYS, unix.EPROTONOSUPPORT, unix.ENOENT)
}

// HugePages needs n more huge pages of the default size. It allocates them until the test ends.
func HugePages(t testing.TB, n int) {
	t.Helper()
	const path = "/proc/sys/vm/nr_hugepages"
	f, err := os.Open(path)
	skipOrFail(t, "huge pages", err, unix.ENOENT)
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // one test at a time
		t.Fatal(err)
	}
	get := func() (n int) {
		b, err := os.ReadFile(path)
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(n int) {
		if err := os.WriteFile(path, []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	before := get()
	t.Cleanup(func() { set(before) })
	set(before + n)
	if now := get(); now < before+n {
		t.Fatalf("%d huge pages instead of %d: free memory is fragmented; reboot", now, before+n)
	}
}

// TCPInfo needs a kernel with TCP_INFO. User-mode emulation fills in the first four bytes only.
func TCPInfo(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var i *unix.TCPInfo
		i, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && i.Rto == 0 { // Linux reports an RTO for every socket
			err = unix.EOPNOTSUPP
		}
	}
	skipOrFail(t, "TCP_INFO", err, unix.EOPNOTSUPP, unix.ENOPROTOOPT)
}

// skipOrFail skips the test when err is one of absent, the errors of a kernel without the facility, and fails it on any
// other error.
func skipOrFail(t testing.TB, what string, err error, absent ...error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, a := range absent {
		if errors.Is(err, a) {
			t.Skipf("this kernel has no %s: %v", what, err)
		}
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Fatalf("%s: %v: run the tests as root (make test does)", what, err)
	}
	t.Fatalf("%s: the kernel may have them, but the probe failed: %v", what, err)
}
