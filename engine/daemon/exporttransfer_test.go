package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"xwarp/engine/daemon/client"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
)

// TestExportOfDirectory: a directory export stores and returns files, never outside its directory, up to its limit in
// bytes. Its state has that limit, the bytes used, and the transfers. An export for reading stores nothing.
func TestExportOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/shared", 0o700),
		os.WriteFile(dir+"/shared/there", []byte("there"), 0o600),
		os.WriteFile(dir+"/secret", []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	writable, readable := freePort(t), freePort(t)
	d, _ := kernel(t, fmt.Sprintf(`
[[export]]
name = "files"
listen = %q
serve = "directory"
path = %q
size = 100
[[export]]
name = "look"
listen = %q
serve = "directory"
path = %q
access = "read"
`, writable, dir+"/shared", readable, dir+"/shared"))
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c, err := transfer.Dial(t.Context(), dev, writable, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	attr := transfer.Attr{Kind: transfer.KindFile, Mode: 0o600, Length: 6}
	secret, err := os.Open(dir + "/secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	f, err := c.Store(t.Context(), "new", attr, 1, secret)
	if err == nil {
		err = f.Move(t.Context(), 0, 6)
	}
	if err == nil {
		err = f.Close(t.Context(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/shared/new"); string(b) != "secret" || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
	theirs := (*transfer.RemoteError)(nil)
	if _, err := c.Fetch(t.Context(), "../secret", nil); !errors.As(err, &theirs) {
		t.Errorf("outside of the directory: %v", err)
	}
	if err := c.Mkdir(t.Context(), "../made", 0o700); !errors.As(err, &theirs) {
		t.Errorf("a directory outside: %v", err)
	}
	if _, err := c.List(t.Context(), "none"); !errors.As(err, &theirs) {
		t.Errorf("a missing directory: %v", err)
	}
	attr.Length = 90
	_, err = c.Store(t.Context(), "big", attr, 1, secret)
	if !errors.As(err, &theirs) || theirs.Code != transfer.CodeTooLarge {
		t.Errorf("more than it may have: %v", err)
	}
	v := d.Snapshot()
	if s := v.Exports[0]; s.Size != 100 || s.Used != 11 || s.Puts != 1 ||
		s.Connections != 1 || s.PutBytes != 6 || s.Failed != 4 {
		t.Errorf("state %+v", s)
	}
	for _, e := range v.Events {
		if e.Event == "transfer" && e.Detail["file"] == "new" && e.Error != "" {
			t.Errorf("a transfer that succeeded has the error %q", e.Error)
		}
	}
	only, err := transfer.Dial(t.Context(), dev, readable, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	attr.Length = 1
	if _, err := only.Store(t.Context(), "x", attr, 1, secret); !errors.As(err, &theirs) {
		t.Errorf("writing to a read-only export: %v", err)
	}
	if list, err := only.List(t.Context(), "."); err != nil || len(list) != 2 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}

// TestCopyToMemory: the error of a copy to a memory export says which kind of export to use instead.
func TestCopyToMemory(t *testing.T) {
	at := freePort(t)
	kernel(t, fmt.Sprintf("[[export]]\nname = \"memory\"\nlisten = %q\nsize = \"64KiB\"\n", at))
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c, err := transfer.Dial(t.Context(), dev, at, 0)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `serve = "directory"`) {
		t.Errorf("Dial: %v", err)
	}
}

// TestTransferGivesBack: a transfer between two programs of a daemon leaves no objects of its connection on either
// side.
func TestTransferGivesBack(t *testing.T) {
	d, socket := kernel(t, "")
	var devs [2]*client.Device
	for i := range devs {
		var err error
		if devs[i], err = client.Open(socket); err != nil {
			t.Fatal(err)
		}
		defer devs[i].Close()
	}
	tree, err := transfer.OpenTree(transfer.TreeConfig{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := transfer.Listen(transfer.ServerConfig{Device: devs[0], Tree: tree},
		netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(t.Context())
	content := verbstest.Pattern(100_000)
	for range 2 {
		c, err := transfer.Dial(t.Context(), devs[1], srv.Addr(), 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.StoreFrom(t.Context(), "file", 0o600, bytes.NewReader(content))
		if err != nil {
			t.Error(err)
		}
		if list, err := c.List(t.Context(), "."); err != nil || len(list) != 1 {
			t.Errorf("the directory has %v, %v", list, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := eventually(func() bool {
		s := d.Snapshot()
		return len(s.QPs)+len(s.CQs)+len(s.MRs)+len(s.PDs) == 0 && len(s.Sessions) == len(devs)
	}); !ok {
		s := d.Snapshot()
		t.Errorf("left over: %d queue pairs, %d completion queues, %d regions, %d domains", len(s.QPs),
			len(s.CQs), len(s.MRs), len(s.PDs))
	}
}
