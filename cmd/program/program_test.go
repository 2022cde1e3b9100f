package program

import (
	"flag"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk is an output whose writes fail, as on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestParse: --help and --version of a service go to the standard output, and a failure to write them is an error.
// Unknown flags and arguments are wrong usage.
func TestParse(t *testing.T) {
	for _, tc := range []struct {
		arg    string
		full   bool
		status int
		out    string
		err    string
	}{
		{"--help", false, ExitOK, "about it", ""},
		{"--version", false, ExitOK, "service ", ""},
		{"--help", true, ExitFailed, "", unix.ENOSPC.Error()},
		{"--version", true, ExitFailed, "", unix.ENOSPC.Error()},
		{"--none", false, ExitUsage, "", "about it"},
		{"word", false, ExitUsage, "", "unexpected argument"},
	} {
		var stdout, stderr strings.Builder
		var to io.Writer = &stdout
		if tc.full {
			to = fullDisk{}
		}
		f := flag.NewFlagSet("service", flag.ContinueOnError)
		status, done := Parse(f, "about it", []string{tc.arg}, to, &stderr)
		if status != tc.status || !done || !strings.Contains(stdout.String(), tc.out) ||
			!strings.Contains(stderr.String(), tc.err) {
			t.Errorf("%s: status %d, %v: %q, %q", tc.arg, status, done, stdout.String(),
				stderr.String())
		}
	}
}
