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

// The program in the README is copied into a module of its own, built and run against an export of xwarpd: as it
// stands, and with the daemon's client as its device.
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
	if n := strings.Count(program, "\n"); !ok || n > 40 || strings.Count(program, `"xwarp/`) > 2 {
		t.Fatalf("a program of %d lines, want at most 40, with two imports of xwarp:\n%s", n,
			program)
	}
	dir := t.TempDir()
	socket, addr := export(t, root, dir)
	through := strings.NewReplacer("engine.OpenKernel(engine.KernelConfig{})",
		fmt.Sprintf("client.Open(%q)", socket), `"xwarp/engine"`, `"xwarp/engine/daemon/client"`)
	for name, source := range map[string]string{"kernel": program,
		"daemon": through.Replace(program)} {
		module := filepath.Join(dir, name)
		write(t, filepath.Join(module, "main.go"), source)
		goModOf(t, root, module)
		binary := filepath.Join(module, "hello")
		tool(t, module, "go", "build", "-mod=mod", "-o", binary, ".")
		if out := tool(t, module, binary, addr); out != "hello over RDMA\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// goModOf writes a go.mod that requires what root requires, and root itself.
func goModOf(t *testing.T, root, module string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(string(text), "module xwarp\n", "module hello\n", 1)
	write(t, filepath.Join(module, "go.mod"),
		own+"\nrequire xwarp v0.0.0\n\nreplace xwarp => "+root+"\n")
	write(t, filepath.Join(module, "go.sum"), string(sums))
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
