package havoc

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestFinds: a failing input is found and written, and fails again when go test reads it.
func TestFinds(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "planted.test")
	build := exec.Command("go", "test", "-c", "-o", program, "./testdata/planted")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) string {
		args = append([]string{program, "-test.run", "^FuzzPlanted$"}, args...)
		if e := os.Getenv("EMULATOR"); e != "" { // make arch
			args = slices.Insert(args, 0, e)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if _, failed := err.(*exec.ExitError); err != nil && !failed {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := run(); out != "PASS\n" {
		t.Fatalf("without -havoc:\n%s", out)
	}
	found := map[string]bool{}
	for seed := 1; seed < 20 && len(found) < 2; seed++ {
		if err := os.RemoveAll(filepath.Join(dir, "testdata")); err != nil {
			t.Fatal(err)
		}
		out := run("-havoc", "1m", "-havoc.seed", strconv.Itoa(seed))
		planted := regexp.MustCompile(`planted (failure|panic)`).FindString(out)
		files, err := filepath.Glob(filepath.Join(dir, "testdata/fuzz/FuzzPlanted/*"))
		if planted == "" || err != nil || len(files) != 1 {
			t.Fatalf("seed %d wrote %v, %v:\n%s", seed, files, err, out)
		}
		if again := run(); !bytes.Contains([]byte(again), []byte(planted)) {
			t.Fatalf("%s does not fail again:\n%s", planted, again)
		}
		found[planted] = true
	}
	if len(found) != 2 {
		t.Errorf("only %v is found", found)
	}
}

// TestBytes: a mutation leaves its inputs unchanged, respects the maximum length, and can reach certain similar inputs.
func TestBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	b, other := []byte{0, 0, 0}, []byte("other")
	seen := map[string]bool{}
	for range 200_000 {
		seen[string(mutateBytes(r, b, other))] = true
		if string(b) != "\x00\x00\x00" || string(other) != "other" {
			t.Fatalf("changed %q, %q", b, other)
		}
	}
	for _, want := range []string{"\x00\x00\x01", "\x80\x00\x00", "\x00\xff\xff", "\x00\x00",
		"\x00\x00\x00\x00", "\x00her", "\x02\x00\x00"} {
		if !seen[want] {
			t.Errorf("never %q", want)
		}
	}
	long := slices.Repeat(b, longest/3)
	for range 2000 {
		if long = mutateBytes(r, long, long); len(long) > longest {
			t.Fatalf("grew to %d bytes", len(long))
		}
	}
}

func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var low, high int
	for range 10_000 {
		v := int8(change(r, reflect.ValueOf(int8(3)), reflect.ValueOf(int8(99))).Int())
		if v < -100 {
			low++
		}
		if v == 99 {
			high++
		}
	}
	if low == 0 || high == 0 {
		t.Errorf("of 10000 mutations of 3, %d are below -100 and %d equal another input", low, high)
	}
}
