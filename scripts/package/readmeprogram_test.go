package install

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadmeProgram follows the README: it saves the program in an empty folder and runs the README's commands there,
// against an export of xwarpd. The program runs as printed, and with the daemon's client as its device.
func TestReadmeProgram(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(readme), "```go\npackage main\n")
	program, _, _ = strings.Cut("package main\n"+program, "```")
	if n := strings.Count(program, "\n"); !ok || n > 60 || strings.Count(program, `"xwarp/`) > 2 {
		t.Fatalf("a program of %d lines, want at most 60, with two imports of xwarp:\n%s", n,
			program)
	}
	_, commands, ok := strings.Cut(string(readme), "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	if !ok || !strings.Contains(commands, "PATH_OF_THE_CLONE") ||
		!strings.Contains(commands, "192.0.2.2:7174") {
		t.Fatalf("the README's commands name no clone or no host:\n%s", commands)
	}
	dir := t.TempDir()
	socket, addr := export(t, root, dir)
	through := strings.NewReplacer("sockets.Open(sockets.Config{})",
		fmt.Sprintf("client.Open(%q)", socket), `"xwarp/engine/sockets"`, `"xwarp/engine/daemon/client"`)
	for name, source := range map[string]string{"kernel": program,
		"daemon": through.Replace(program)} {
		module := filepath.Join(dir, name)
		write(t, filepath.Join(module, "main.go"), source)
		script := strings.NewReplacer("PATH_OF_THE_CLONE", root, "192.0.2.2:7174", addr).
			Replace(commands)
		// The checksum database may be out of reach; go.sum of the clone has the sums.
		t.Setenv("GOSUMDB", "off")
		t.Setenv("GOFLAGS", "")
		if out := tool(t, module, "sh", "-ec", script); out != "hello over RDMA\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// export starts xwarpd with an export of memory, and returns its socket and where the export listens.
func export(t *testing.T, root, dir string) (socket, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close()
	socket = filepath.Join(dir, "control.sock")
	file := filepath.Join(dir, "xwarp.toml")
	write(t, file, fmt.Sprintf("[daemon]\nsocket = %q\nsocket_group = \"\"\n\n[[interface]]\n"+
		"name = \"lo\"\ntransport = \"kernel\"\n\n[[export]]\nname = \"m\"\nlisten = %q\n"+
		"size = \"64KiB\"\n", socket, addr))
	binary := filepath.Join(dir, "xwarpd")
	build := exec.Command("go", "build", "-pgo=off", "-o", binary, "./cmd/xwarpd")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config", file)
	var log bytes.Buffer
	cmd.Stderr, cmd.Stdout = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		cmd.Wait()
		if t.Failed() {
			t.Logf("xwarpd:\n%s", &log)
		}
	})
	for range 600 { // a minute: the machine may be busy
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return socket, addr
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("xwarpd does not start")
	return "", ""
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tool runs a command to its end and returns what it prints.
func tool(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}
