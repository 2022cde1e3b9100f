package main

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// asCommand makes the test binary the command itself, for tests that start it in a network namespace.
const asCommand = "XWARP_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run())
	}
	testscript.Main(m, map[string]func(){"xwarp": func() { os.Exit(run()) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor},
	})
}

// waitFor returns when something listens at an address.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor address")
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if l, err := net.Listen("tcp", args[0]); err != nil {
			return
		} else {
			l.Close()
		}
	}
	ts.Fatalf("nothing listens at %s", args[0])
}
