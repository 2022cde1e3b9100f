package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
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

var kills = flag.Int("kills", 24, "how many puts TestKilledPuts cuts off")

// putRole puts a file into a directory export. Its arguments: the address, the file.
func putRole(args []string) error {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		return err
	}
	defer dev.Close()
	return putBy(dev, args)
}

func putBy(dev verbs.Device, args []string) error {
	c, err := transfer.Dial(context.Background(), dev, netip.MustParseAddrPort(args[0]), 0)
	if err != nil {
		return err
	}
	defer c.Close()
	content, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	fmt.Println("begun")
	_, err = c.Put(context.Background(), bytes.NewReader(content), int64(len(content)))
	fmt.Println("done", err)
	return err
}

// putted is an export with the state of the puts to one of its files.
type putted struct {
	at   netip.AddrPort
	path string
	took time.Duration // by a put that was not killed
	old  []byte
	late [][]byte // puts of killed clients: each may become the content while the daemon lives
	seen map[string]int
}

// TestKilledPuts kills the daemon or the client at random moments of puts, into replaced and overwritten files.
// Afterwards the file, and a get of it, must have all of the old or all of the new content, with its length.
func TestKilledPuts(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	exports := []*putted{{path: dir + "/replaced"}, {path: dir + "/overwritten"}}
	text := "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	for i, e := range exports {
		e.at, e.seen = freePort(t), map[string]int{}
		text += fmt.Sprintf("[[export]]\nname = \"e%d\"\nlisten = %q\nserve = \"transfer\"\n"+
			"path = %q\nsize = %d\nin_place = %v\n", i, e.at, e.path, size, i == 1)
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
		e.put(t, random, size)
	}
	for round := range *kills {
		e := exports[round%2]
		now, c := e.begin(t, random, size)
		time.Sleep(time.Duration(random.Float64() * 1.3 * float64(e.took)))
		victim := "daemon"
		if round/2%2 == 0 {
			d.kill()
			if round%2 == 0 { // an overwritten file is whole once its journal is applied
				b, err := os.ReadFile(e.path)
				e.check(t, round, "the file", b, now, err)
			}
			restart()
		} else {
			victim = "client"
		}
		c.kill()
		e.get(t, round, victim, now)
	}
	d.kill()
	restart()
	for _, e := range exports {
		if list := leftovers(t, e.path); len(list) > 0 {
			t.Errorf("left behind: %q", list)
		}
		t.Logf("%s: a put took %v; %v", filepath.Base(e.path), e.took, e.seen)
	}
}

// noise writes the next content to a file.
func (e *putted) noise(t *testing.T, random *rand.Rand, size int) []byte {
	t.Helper()
	content := make([]byte, 1+random.IntN(size))
	rand.NewChaCha8([32]byte{byte(random.Uint32()), byte(random.Uint32())}).Read(content)
	if err := os.WriteFile(e.path+".next", content, 0o600); err != nil {
		t.Fatal(err)
	}
	return content
}

// begin starts a put of new content.
func (e *putted) begin(t *testing.T, random *rand.Rand, size int) (now []byte, c *child) {
	t.Helper()
	now = e.noise(t, random, size)
	c = start(t, "/proc/self/exe", 0, "put", e.at.String(), e.path+".next")
	if got := c.line(); got != "begun" {
		t.Fatalf("put: %q", got)
	}
	return now, c
}

// put waits for a put to finish.
func (e *putted) put(t *testing.T, random *rand.Rand, size int) {
	t.Helper()
	now, c := e.begin(t, random, size)
	begin := time.Now()
	if got := c.line(); got != "done <nil>" {
		t.Fatalf("put: %q", got)
	}
	e.took, e.old = time.Since(begin), now
	c.kill()
}

// get reads the content as a client, as the base of the next round.
func (e *putted) get(t *testing.T, round int, victim string, now []byte) {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var b bytes.Buffer
	var sum transfer.Summary
	// A put of a killed client may replace the content, and thus the region's STag, in the middle of the get.
	for range 6 {
		c, dialErr := transfer.Dial(ctx, dev, e.at, 0)
		if dialErr != nil {
			t.Fatalf("round %d: %v", round, dialErr)
		}
		defer c.Close()
		b.Reset()
		if sum, err = c.Get(ctx, &b, 0); err == nil {
			break
		}
	}
	which := e.check(t, round, "a get", b.Bytes(), now, err)
	if sum.Content != int64(b.Len()) || sum.Sum != sha256.Sum256(b.Bytes()) {
		t.Errorf("round %d: %+v of %d bytes", round, sum, b.Len())
	}
	e.seen[victim+" killed: "+which+" content"]++
	e.old = bytes.Clone(b.Bytes())
	if e.late = append(e.late, now); victim == "daemon" {
		e.late = nil
	}
}

func (e *putted) check(t *testing.T, round int, what string, got, now []byte, err error) string {
	t.Helper()
	switch {
	case err == nil && (bytes.Equal(got, e.old) || slices.ContainsFunc(e.late, func(l []byte) bool {
		return bytes.Equal(got, l)
	})):
		return "old"
	case err == nil && bytes.Equal(got, now):
		return "new"
	}
	t.Errorf("round %d, %s: %s has %d bytes, %v: neither the %d old ones nor the %d of the put",
		round, filepath.Base(e.path), what, len(got), err, len(e.old), len(now))
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
