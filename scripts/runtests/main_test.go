package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestReport checks that the report has a line for a passing package and for a long test, and the output of failing
// tests. A test that did not end must be reported with its output when its package fails.
func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, false)
	for line := range strings.Lines(`
{"Action":"start","Package":"x/good"}
{"Action":"run","Package":"x/good","Test":"TestSlow"}
{"Action":"output","Package":"x/good","Test":"TestSlow","Output":"=== RUN TestSlow\n"}
{"Action":"output","Package":"x/good","Test":"TestSlow","Output":"a log\n"}
{"Action":"pass","Package":"x/good","Test":"TestSlow","Elapsed":12.3}
{"Action":"output","Package":"x/good","Output":"PASS\n"}
{"Action":"output","Package":"x/good","Output":"ok  \tx/good\t12.4s\n"}
{"Action":"pass","Package":"x/good"}
{"Action":"start","Package":"x/bad"}
{"Action":"run","Package":"x/bad","Test":"TestA"}
{"Action":"output","Package":"x/bad","Test":"TestA","Output":"--- FAIL: TestA\n"}
{"Action":"fail","Package":"x/bad","Test":"TestA"}
{"Action":"run","Package":"x/bad","Test":"TestB"}
{"Action":"output","Package":"x/bad","Test":"TestB","Output":"panic: oh\n"}
{"Action":"output","Package":"x/bad","Output":"FAIL\tx/bad\t0.1s\n"}
{"Action":"fail","Package":"x/bad"}
{"Action":"run","Package":"x/last","Test":"TestC"}
{"Action":"run","Package":"x/last","Test":"TestC/part"}
`) {
		var e event
		if line == "\n" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		r.handle(e)
	}
	r.summary()
	const want = "    \tx/good TestSlow\t12.3s\nok  \tx/good\t12.4s\n--- FAIL: TestA\npanic: oh\nFAIL\tx/bad\t0.1s\n" +
		"FAIL\tx/bad TestA\nFAIL\tx/bad TestB\nFAIL\tx/bad\n" +
		"1 tests passed, 2 failed, 0 skipped in 0s\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	now := r.begin.Add(90 * time.Second)
	r.started[name{"x/last", "TestC/part"}] = now.Add(-40 * time.Second)
	const running = "... \tafter 1m30s: x/last TestC/part (40s)"
	if got := r.running("go test", now); got != running {
		t.Errorf("running: %q, want %q", got, running)
	}
}
