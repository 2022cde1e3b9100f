package explain

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"xwarp/bpf"
	"xwarp/engine/daemon/counters"
)

// Every drop cause has an explanation.
func TestEveryDrop(t *testing.T) {
	want := []string{bpf.DropPeer.String(), bpf.DropSYN.String(), bpf.DropStray.String(),
		bpf.DropNoSocket.String(), bpf.DropClear.String()}
	for cause := range counters.Drops(nil, nil) {
		want = append(want, cause)
	}
	for _, cause := range want {
		if e := Find(cause); len(e) != 1 || e[0].Kind != Drop || e[0].Code != cause {
			t.Errorf("%s: %+v", cause, e)
		}
	}
	if len(drops()) != len(want) {
		t.Errorf("%d texts for %d causes", len(drops()), len(want))
	}
}

// TestEveryCounter: every counter, and every outcome of the steering program, has an explanation.
func TestEveryCounter(t *testing.T) {
	want := []string{counters.HeldBytes.Key, counters.HeldBytes.Metric}
	for _, table := range counters.All() {
		for _, c := range table {
			want = append(want, c.Key)
			if c.Metric != "" {
				want = append(want, c.Metric)
			}
		}
	}
	for o := range bpf.Outcome(bpf.NumOutcomes) {
		want = append(want, o.String())
	}
	for _, key := range want {
		if len(Find(key)) == 0 || Find(key)[0].Meaning == "" {
			t.Errorf("%s: %+v", key, Find(key))
		}
	}
	if len(want) < 300 {
		t.Errorf("%d names", len(want))
	}
}

// logged matches a call of slog with a message.
var logged = regexp.MustCompile(`[lL]og(?:\(\)|Of\(\w+\))?\.(?:Info|Warn|Error)\(\s*"([^"]+)"`)

// Every log message of the engine and xwarpd has an explanation, found by the message and by its line, and no
// explanation is unused.
func TestEveryMessage(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"../../../engine", "../../xwarpd"} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range logged.FindAllSubmatch(b, -1) {
				used[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for text := range used {
		for _, query := range []string{text, "level=WARN msg=\"" + text + "\" remote=192.0.2.1:1",
			`{"level":"INFO","msg":"` + text + `","remote":"x"}`} {
			if query != text && strings.HasPrefix(text, "RDMA_CM_EVENT_") {
				continue // events are found by their name
			}
			if e := Find(query); len(e) == 0 || e[0].Code != text {
				t.Errorf("%s: %d entries", query, len(e))
			}
		}
	}
	for _, e := range messages() {
		if !used[e.Code] && e.Code != "IBV_WC_" {
			t.Errorf("nothing logs %q", e.Code)
		}
	}
}
