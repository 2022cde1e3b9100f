package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeProgram writes an executable shell script, and returns its path.
func writeProgram(t *testing.T, name, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func benchLocalAnswer(messages int, latency float64) string {
	return fmt.Sprintf(`echo "1.000 Gbit/s, %d messages/s min 1.00 p50 %.2f p99 3.00 us"
echo '{"Client":{"messages":%d,"seconds":2},"Server":{"messages":0}}'
`, messages/2, latency, messages)
}

func TestCompareBinaries(t *testing.T) {
	usual := writeProgram(t, "usual", benchLocalAnswer(1000, 5))
	for _, tc := range []struct {
		name, script   string
		rate, latency  float64 // medians
		slower, failed []string
	}{
		{"the same", benchLocalAnswer(1000, 5), 1, 1, nil, nil},
		{"a bit slower", benchLocalAnswer(980, 5.1), 0.98, 0.98, nil, nil},
		{"slower", benchLocalAnswer(900, 5), 0.9, 1, []string{"write-1500"}, nil},
		{"faster, with a longer way", benchLocalAnswer(2000, 10), 2, 0.5, []string{"ping-pong"},
			nil},
		{"does not know the flag", `echo "unknown flag: --tx" >&2; exit 1`, 0, 0, nil,
			[]string{"write-1500", "ping-pong"}},
		{"something else", "echo hello", 0, 0, nil, []string{"write-1500", "ping-pong"}},
		{"nothing moved", benchLocalAnswer(0, 5), 0, 1, nil, []string{"write-1500"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rows, err := compareBinaries(t.Context(),
				CompareOptions{Old: usual, New: writeProgram(t, "new", tc.script),
					Rounds: 4, Only: []string{"write-1500", "ping-pong"}})
			if len(rows) != 2 || errors.Is(err, ErrSlower) != (len(tc.slower) > 0) {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			if len(tc.slower) == 0 && (err != nil) != (len(tc.failed) > 0) {
				t.Errorf("the new binary fails at %q: %v", tc.failed, err)
			}
			for i, want := range []float64{tc.rate, tc.latency} {
				r := rows[i]
				failed := strings.Contains(strings.Join(tc.failed, " "), r.Name)
				if failed != (r.Error != "") {
					t.Errorf("%s: error %q, want one: %v", r.Name, r.Error, failed)
				}
				if !failed && (r.Median < want-0.01 || r.Median > want+0.01) {
					t.Errorf("%s: ratio %.3f, want %.2f", r.Name, r.Median, want)
				}
				if slow := strings.Contains(strings.Join(tc.slower, " "),
					r.Name); slow != r.Slower {
					t.Errorf("%s: slower %v, want %v", r.Name, r.Slower, slow)
				}
			}
		})
	}
}

// TestOldBinaryCannot: a workload that only the old binary cannot do has an error in its row, but the comparison does
// not fail.
func TestOldBinaryCannot(t *testing.T) {
	rows, err := compareBinaries(t.Context(), CompareOptions{
		Old: writeProgram(t, "old", `echo "unknown flag: --tx" >&2; exit 1`),
		New: writeProgram(t, "new", benchLocalAnswer(1000, 5)), Rounds: 1,
		Only: []string{"write-1500"}})
	if err != nil || rows[0].Error == "" {
		t.Errorf("%v, %+v", err, rows)
	}
}

// A binary that is slow only in the first set of rounds does not count as slower.
func TestSlowFigureIsMeasuredTwice(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	script := fmt.Sprintf("echo >> %s\nif [ $(wc -l < %[1]s) -le 3 ]; then\n%s\nelse\n%s\nfi\n",
		count,
		benchLocalAnswer(500, 5), benchLocalAnswer(1000, 5))
	rows, err := compareBinaries(t.Context(), CompareOptions{Old: writeProgram(t, "old",
		benchLocalAnswer(1000, 5)),
		New: writeProgram(t, "new", script), Rounds: 3, Only: []string{"write-64"}})
	if err != nil || rows[0].Slower || len(rows[0].New) != 6 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestSecondSetCrashes: a binary that is slow in the first set of rounds and crashes in the second one is a failure.
func TestSecondSetCrashes(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	script := fmt.Sprintf("echo >> %s\n[ $(wc -l < %[1]s) -le 3 ] || exit 1\n%s\n", count,
		benchLocalAnswer(500, 5))
	_, err := compareBinaries(t.Context(), CompareOptions{
		Old: writeProgram(t, "old", benchLocalAnswer(1000, 5)),
		New: writeProgram(t, "new", script), Rounds: 3, Only: []string{"write-64"}})
	if err == nil || !strings.Contains(err.Error(), "write-64: not measured") {
		t.Error(err)
	}
}

func TestCompareRejectsUnknownWorkload(t *testing.T) {
	if _, err := compareBinaries(t.Context(),
		CompareOptions{Only: []string{"write-1"}}); err == nil {
		t.Error("a workload that does not exist is accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compareBinaries(ctx, CompareOptions{Old: "a", New: "b",
		Rounds: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}
