package libxwarpverbs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scratch creates a directory that programs can write to.
func scratch(t testing.TB) string {
	t.Helper()
	d, err := os.MkdirTemp(dir, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d, 0o777); err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	iserTarget = "iqn.2026-11.example:disk"
	iserQEMU   = "iqn.2008-11.org.linux-kvm" // QEMU's own name
)

// exportDisk exports file over iSER by tgt at the address of e. Its TCP portal uses another port, since a port has one
// owner. This version of tgt needs initiators bound by address and by name.
func exportDisk(t testing.TB, e, peer *end, file string) *program {
	t.Helper()
	e.env = append(e.env, "TGT_IPC_SOCKET="+filepath.Join(scratch(t), "socket"))
	daemon := e.start(t, "/usr/sbin/tgtd -f --iscsi portal=127.0.0.1:3269 --iser pool_sz_mb=128", peer)
	e.listening(t, daemon)
	for _, line := range []string{
		"--mode target --op new --tid 1 -T " + iserTarget,
		"--mode logicalunit --op new --tid 1 --lun 1 -b " + file,
		"--mode target --op bind --tid 1 -I " + peer.addr,
		"--mode target --op bind --tid 1 -Q " + iserQEMU,
	} {
		e.start(t, "/usr/sbin/tgtadm --lld iser "+line, peer).wait(t)
	}
	return daemon
}

// TestISER reads and writes a disk that tgt exports over iSER, with QEMU's block layer (libiscsi): tgt reads written
// data from QEMU's memory, and writes read data into it. The test does not use the tools of libiscsi, because they
// treat a reply that is a second late as an error.
func TestISER(t *testing.T) {
	a, b := pair(t)
	const size, mib = 32 << 20, 1 << 20
	disk := filepath.Join(scratch(t), "disk")
	content := bytes.Repeat([]byte{0x77}, size)
	if err := os.WriteFile(disk, content, 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(disk, 0o666)
	exportDisk(t, b, a, disk)
	const url = " iser://@:3260/" + iserTarget + "/1"

	commands := []string{ // one request of libiscsi's iSER has 512 KiB at most
		"read -P 0x77 31m 256k", "write -P 0xa5 0 64k", "write -P 0x3c 1m 256k",
		"read -P 0x3c 1m 256k", "aio_write -P 0x11 4m 128k", "aio_write -P 0x22 5m 128k",
		"aio_flush", "read -P 0x22 5m 128k",
	}
	for i := range 64 { // many at once
		commands = append(commands, fmt.Sprintf("aio_write -P 0x33 %dk 64k", 8192+64*i))
	}
	commands = append(commands, "aio_flush", "read -P 0x33 8m 256k")
	a.qemuIO(t, commands, url, b)
	for _, w := range []struct {
		at, n   int
		pattern byte
	}{
		{0, 64 << 10, 0xa5}, {mib, 256 << 10, 0x3c},
		{4 * mib, 128 << 10, 0x11}, {5 * mib, 128 << 10, 0x22},
		{8 * mib, 4 * mib, 0x33},
	} {
		copy(content[w.at:], bytes.Repeat([]byte{w.pattern}, w.n))
	}
	got, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Error("the disk does not hold what was written, or more than that")
	}
}

// qemuIO runs commands in QEMU's block layer. The test fails if a read with -P finds another pattern, or if QEMU prints
// an error.
func (e *end) qemuIO(t testing.TB, commands []string, url string, peer *end) {
	t.Helper()
	words := []string{"qemu-io", "-f", "raw"}
	for _, c := range commands {
		words = append(words, "-c", c)
	}
	out := e.startWords(t, append(words, strings.TrimSpace(url)), peer).wait(t)
	if strings.Contains(out, "Pattern verification failed") || strings.Contains(out, "error") {
		t.Errorf("qemu-io:\n%s", out)
	}
}
