package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/engine/host/staging"
	"xwarp/engine/sockets"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

var kills = flag.Int("kills", 24, "how many copies TestKilledStores cuts off")

// storeRole stores a file in a directory export under the name "file". Its arguments: the way of storing it, "stream"
// or "file"; the address; the path of the file.
func storeRole(args []string) error {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		return err
	}
	defer dev.Close()
	return storeBy(dev, args)
}

func storeBy(dev verbs.Device, args []string) error {
	ctx := context.Background()
	c, err := transfer.Dial(ctx, dev, netip.MustParseAddrPort(args[1]), 0)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := os.Open(args[2])
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("begun")
	if args[0] == "stream" {
		_, err = c.StoreFrom(ctx, "file", 0o600, f)
	} else {
		err = storeFile(ctx, c, f)
	}
	fmt.Println("done", err)
	return err
}

// storeFile stores a local file as "file".
func storeFile(ctx context.Context, c *transfer.Client, local *os.File) error {
	st, err := local.Stat()
	if err != nil {
		return err
	}
	a := transfer.Attr{Kind: transfer.KindFile, Mode: 0o600, Length: uint64(st.Size())}
	f, err := c.Store(ctx, "file", a, rand.Uint64(), local)
	if err == nil {
		err = f.Move(ctx, 0, st.Size())
	}
	if err == nil {
		err = f.Close(ctx, true)
	}
	return err
}

// stored is a directory export, with the expected content of its file.
type stored struct {
	way  string // the first argument of storeRole
	at   netip.AddrPort
	path string
	took time.Duration // duration of a copy that was not killed
	old  []byte
	late [][]byte // sent by killed clients; until the daemon restarts, each may become the content
	seen map[string]int
}

// TestKilledStores kills the daemon or the client at random moments while a file is replaced, by a stream and by a file
// of known length. Afterwards the file, and a fetch of it, must have all of the old or all of the new content. The next
// copy leaves nothing else behind.
func TestKilledStores(t *testing.T) {
	const size = 4 << 20
	exports := []*stored{{way: "stream"}, {way: "file"}}
	text := "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	for _, e := range exports {
		e.at, e.path, e.seen = freePort(t), t.TempDir()+"/file", map[string]int{}
		text += fmt.Sprintf("[[export]]\nname = %q\nlisten = %q\nserve = \"directory\"\n"+
			"path = %q\n", e.way, e.at, filepath.Dir(e.path))
	}
	config, _ := writeConfig(t, text)
	var d *child
	restart := func() {
		d = start(t, "/proc/self/exe", 0, "daemon", "/proc/self/ns/net", config)
		if d.line() != "ready" {
			t.Fatal("the daemon does not start")
		}
	}
	restart()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, e := range exports {
		e.store(t, random, size)
	}
	for round := range *kills {
		e := exports[round%2]
		now, c := e.begin(t, random, size)
		time.Sleep(time.Duration(random.Float64() * 1.3 * float64(e.took)))
		victim := "daemon"
		if round/2%2 == 0 {
			d.kill()
			b, err := os.ReadFile(e.path)
			e.check(t, round, "the file", b, now, err)
			restart()
		} else {
			victim = "client"
		}
		c.kill()
		e.fetch(t, round, victim, now)
	}
	d.kill()
	restart()
	for _, e := range exports {
		e.store(t, random, size)
		if list := leftovers(t, e.path); len(list) > 0 {
			t.Errorf("left behind: %q", list)
		}
		t.Logf("%s: a copy took %v; %v", e.way, e.took, e.seen)
	}
}

// noise writes random content to a new file, and returns its path and the content.
func noise(t *testing.T, random *rand.Rand, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, 1+random.IntN(size))
	rand.NewChaCha8([32]byte{byte(random.Uint32()), byte(random.Uint32())}).Read(content)
	path = filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// begin starts storing new content, which it returns.
func (e *stored) begin(t *testing.T, random *rand.Rand, size int) (now []byte, c *child) {
	t.Helper()
	path, now := noise(t, random, size)
	c = start(t, "/proc/self/exe", 0, "store", e.way, e.at.String(), path)
	if got := c.line(); got != "begun" {
		t.Fatalf("store: %q", got)
	}
	return now, c
}

// store stores new content and waits for the end.
func (e *stored) store(t *testing.T, random *rand.Rand, size int) {
	t.Helper()
	now, c := e.begin(t, random, size)
	begin := time.Now()
	if got := c.line(); got != "done <nil>" {
		t.Fatalf("store: %q", got)
	}
	e.took, e.old = time.Since(begin), now
	c.kill()
}

// fetch fetches the file as a client, and checks its content. That becomes the old content of the next round.
func (e *stored) fetch(t *testing.T, round int, victim string, now []byte) {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := transfer.Dial(ctx, dev, e.at, 0)
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer c.Close()
	var b bytes.Buffer
	_, err = c.FetchTo(ctx, "file", &b)
	which := e.check(t, round, "a fetch", b.Bytes(), now, err)
	e.seen[victim+" killed: "+which+" content"]++
	e.old = bytes.Clone(b.Bytes())
	if e.late = append(e.late, now); victim == "daemon" {
		e.late = nil
	}
}

func (e *stored) check(t *testing.T, round int, what string, got, now []byte, err error) string {
	t.Helper()
	switch {
	case err == nil && (bytes.Equal(got, e.old) || slices.ContainsFunc(e.late, func(l []byte) bool {
		return bytes.Equal(got, l)
	})):
		return "old"
	case err == nil && bytes.Equal(got, now):
		return "new"
	}
	t.Errorf("round %d, %s: %s has %d bytes, %v: neither the %d old ones nor the %d new ones",
		round, e.way, what, len(got), err, len(e.old), len(now))
	return "mixed"
}

// leftovers returns the staging files of a file.
func leftovers(t *testing.T, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		if staging.Leftover(e.Name()) && strings.Contains(e.Name(), filepath.Base(path)) {
			names = append(names, e.Name())
		}
	}
	return names
}
