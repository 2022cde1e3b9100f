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

// TestReadmeProgram follows the README: it runs the README's commands in an empty folder, against an export of xwarpd.
// It does so with three programs: the one that the README links to, once on kernel sockets and once with the daemon's
// client as its device, and the excerpt in the README.
func TestReadmeProgram(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const example, server = "engine/verbs/examplehello_test.go", "192.0.2.2:7174"
	readme := read(t, filepath.Join(root, "README.md"))
	excerpt, commands := fenced(t, readme, "go"), fenced(t, readme, "sh")
	if !strings.Contains(readme, "("+example+")") {
		t.Errorf("the README does not link to %s", example)
	}
	if !strings.Contains(commands, "PATH_OF_THE_CLONE") || !strings.Contains(excerpt, server) {
		t.Fatalf("the README names no clone or no host:\n%s\n%s", commands, excerpt)
	}
	program := strings.NewReplacer("package verbs_test", "package main", "func Example()",
		"func main()").Replace(read(t, filepath.Join(root, example)))
	if n := strings.Count(excerpt, "\n"); n > 12 || strings.Count(program, `"xwarp/`) > 2 {
		t.Fatalf("an excerpt of %d lines, want at most 12; or more than two imports of xwarp", n)
	}
	dir := t.TempDir()
	socket, addr := export(t, root, dir)
	through := strings.NewReplacer("sockets.Open(sockets.Config{})",
		fmt.Sprintf("client.Open(%q)", socket), `"xwarp/engine/sockets"`, `"xwarp/engine/daemon/client"`)
	for name, p := range map[string]struct{ source, want string }{
		"kernel": {program, "hello over RDMA\n"},
		"daemon": {through.Replace(program), "hello over RDMA\n"},
		"excerpt": {"package main\n\nimport (\n\t\"context\"\n\t\"net/netip\"\n\n" +
			"\t\"xwarp/engine/sockets\"\n\t\"xwarp/engine/verbs\"\n)\n\nfunc main() {\n" +
			"ctx := context.Background()\n" + excerpt + "if err != nil {\npanic(err)\n}\n}\n", ""},
	} {
		module := filepath.Join(dir, name)
		write(t, filepath.Join(module, "main.go"), strings.ReplaceAll(p.source, server, addr))
		script := strings.ReplaceAll(commands, "PATH_OF_THE_CLONE", root)
		// The checksum database may be unreachable. go.sum of the clone has the checksums.
		t.Setenv("GOSUMDB", "off")
		t.Setenv("GOFLAGS", "")
		if out := tool(t, module, "sh", "-ec", script); out != p.want {
			t.Errorf("%s: %q, want %q", name, out, p.want)
		}
	}
}

// fenced returns the first fenced code block of a language in a Markdown document.
func fenced(t *testing.T, text, language string) string {
	t.Helper()
	_, block, ok := strings.Cut(text, "```"+language+"\n")
	block, _, end := strings.Cut(block, "```")
	if !ok || !end {
		t.Fatalf("the document has no block of %s", language)
	}
	return block
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// export starts xwarpd with an export of memory. It returns the path of the daemon's socket and the address at which
// the export listens.
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
	for range 600 { // up to a minute, because the machine may be busy
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

// tool runs a command in dir until it ends and returns its standard output. The test fails if the command does.
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
