package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestCopyInLittleMemory copies 384 MiB, three times the data memory that each command and the server may use: from and
// to a file, stdin and stdout. A command that read everything into memory first would fail.
func TestCopyInLittleMemory(t *testing.T) {
	const memory, size = 128 << 20, 384 << 20
	dir, there := t.TempDir(), t.TempDir()
	f, err := os.Create(dir + "/here")
	if err == nil {
		err = f.Truncate(size) // a hole: it takes no disk here
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bounded := func(args ...string) *running {
		c := process(t, args...)
		limited := []string{"prlimit", fmt.Sprintf("--data=%d", memory)}
		c.Args = append(limited, append([]string{c.Path}, args...)...)
		if c.Path, err = exec.LookPath("prlimit"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	srv := bounded("serve", there, "--transport=kernel", "--listen=127.0.0.1:0")
	startServer(t, srv)
	copied := func(from, to, name string, in io.Reader, out io.Writer) {
		t.Helper()
		c := bounded("cp", from, to, "--transport=kernel", "--timeout=2m")
		c.Stdin, c.Stdout = in, out
		if err := c.Run(); err != nil {
			t.Fatalf("cp %s %s: %v", from, to, err)
		}
		if st, err := os.Stat(name); err != nil || st.Size() != size {
			t.Errorf("cp %s %s: %v, %v", from, to, st, err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	back, err := os.Create(dir + "/back")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	remote := srv.at + "/stream"
	copied(dir+"/here", srv.at+"/file", there+"/file", nil, nil)
	copied("-", remote, there+"/stream", io.LimitReader(f, size), nil)
	if err := os.Rename(dir+"/here", there+"/stream"); err != nil {
		t.Fatal(err)
	}
	copied(remote, "-", dir+"/back", nil, back)
	copied(remote, dir+"/again", dir+"/again", nil, nil)
}
