package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestPutInLittleMemory puts three times the memory that the command may have, from a file and from stdin: neither
// is copied into memory first. The server, whose content is a file, has no more.
func TestPutInLittleMemory(t *testing.T) {
	const memory, size = 128 << 20, 384 << 20
	dir := t.TempDir()
	file, there := dir+"/here", dir+"/there"
	f, err := os.Create(file)
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
	srv := bounded("serve", "--transport=kernel", "--listen=127.0.0.1:0", "--file="+there,
		fmt.Sprintf("--size=%d", size))
	startServer(t, srv)
	for name, stdin := range map[string]io.Reader{file: nil, "-": io.LimitReader(f, size)} {
		put := bounded("put", name, "--transport=kernel", "--to="+srv.at, "--timeout=2m")
		put.Stdin = stdin
		if out, err := put.CombinedOutput(); err != nil {
			t.Fatalf("put %s: %v\n%s", name, err, out)
		}
		if st, err := os.Stat(there); err != nil || st.Size() != size {
			t.Errorf("put %s: %v, %v", name, st, err)
		}
	}
}
