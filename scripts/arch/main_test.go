package main

import (
	"strings"
	"testing"
)

// TestCount counts an output of go test -json with packages that pass, fail, do not build, end early and have no tests.
func TestCount(t *testing.T) {
	const said = `{"Action":"start","Package":"xwarp/good"}
{"Action":"pass","Package":"xwarp/good","Test":"TestOne/sub"}
{"Action":"pass","Package":"xwarp/good","Test":"TestOne"}
{"Action":"skip","Package":"xwarp/good","Test":"TestTwo"}
{"Action":"pass","Package":"xwarp/good"}
{"Action":"output","Package":"xwarp/bad","Test":"TestThree","Output":"three is wrong\n"}
{"Action":"fail","Package":"xwarp/bad","Test":"TestThree"}
{"Action":"pass","Package":"xwarp/bad","Test":"TestFour"}
{"Action":"fail","Package":"xwarp/bad"}
{"ImportPath":"xwarp/broken","Action":"build-output","Output":"syntax error\n"}
{"Action":"fail","Package":"xwarp/broken"}
{"Action":"skip","Package":"xwarp/none"}
{"Action":"pass","Package":"xwarp/cut","Test":"TestFive"}
`
	var report strings.Builder
	packages, err := count(strings.NewReader(said), &report)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"xwarp/good":   "ok 1, 1 skipped",
		"xwarp/bad":    "FAILED: 1 passed; TestThree",
		"xwarp/broken": "FAILED: 0 passed; ",
		"xwarp/cut":    "FAILED: 1 passed; did not finish",
	}
	for name, text := range want {
		if c := packages[name]; c == nil || c.cell().Text != text {
			t.Errorf("%s is %+v, want %q", name, c, text)
		}
	}
	if len(packages) != len(want) {
		t.Errorf("%d packages, want %d", len(packages), len(want))
	}
	if !strings.Contains(report.String(), "three is wrong") {
		t.Errorf("the report does not say what failed:\n%s", &report)
	}
}
