// Package program is shared by the commands: how signals end them, and the flags of those that are services.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/term"

	"xwarp/engine/plain"
	"xwarp/engine/version"
)

// Exit statuses of all programs. None is 2, with which Go ends a process that panics or that SIGABRT
// hits: by the status systemd tells a crash, after which it restarts a unit, from a wrong command line.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 64 // EX_USAGE of sysexits.h
	ExitConfig = 78 // EX_CONFIG: the configuration of xwarpd
)

// Main runs a program and ends the process with its status. The first SIGINT or SIGTERM ends ctx, the second one the
// process at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// IsTerminal reports whether a program reads from or writes to a terminal there.
func IsTerminal(stream any) bool {
	if w, ok := stream.(interface{ Unwrap() io.Writer }); ok {
		stream = w.Unwrap()
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// PrintError writes each line of text, which may be several errors, behind the name of the program or its command.
func PrintError(w io.Writer, name, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(w, "%s: %s\n", name, plain.Text(line))
	}
}

// Version returns the line that says which source a program was built from.
func Version(name string) string {
	return fmt.Sprintf("%s %s, %s, %s/%s\n", name, version.Get().Version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

// Parse parses the flags of a service, which takes no arguments, and answers --help, which begins with about, and
// --version. When done, the service ends with the status at once.
func Parse(f *flag.FlagSet, about string, args []string, stdout, stderr io.Writer) (status int,
	done bool) {
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "%s\n\n", about)
		f.PrintDefaults()
	}
	show := f.Bool("version", false, "print the version and end")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK, true
	case err != nil:
		return ExitUsage, true
	case f.NArg() > 0:
		fmt.Fprintf(stderr, "%s: %q is one argument too many\n", f.Name(), f.Arg(0))
		return ExitUsage, true
	case *show:
		fmt.Fprint(stdout, Version(f.Name()))
		return ExitOK, true
	}
	return ExitOK, false
}
