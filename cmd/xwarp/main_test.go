package main

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// asCommand is the environment variable that makes the test binary the command itself, for tests that start it in a
// network namespace.
const asCommand = "XWARP_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if socket, peer, ok := strings.Cut(os.Getenv(asProgram), " "); ok {
		if err := runProgram(socket, peer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testscript.Main(m, map[string]func(){"xwarp": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor},
	})
}

// waitFor waits until the port of an address has a listener. It reads the tables of the kernel, since a connection
// would count as a client. It reads those of this thread, because other tests leave threads in network namespaces.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor address")
	}
	at, err := netip.ParseAddrPort(args[0])
	ts.Check(err)
	listening := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `,
		at.Port()))
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(
		5 * time.Millisecond) {
		for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			if b, _ := os.ReadFile(table); listening.Match(b) { // a kernel may be without IPv6
				return
			}
		}
	}
	ts.Fatalf("nothing listens at %s", args[0])
}
