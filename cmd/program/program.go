// Package program has the code that commands share: exit statuses, signals, and the flags of services.
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

// Exit statuses of all programs. None is 2, the status of a Go process that panics or gets SIGABRT: systemd restarts a
// unit after a crash, but not after a usage error.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 64 // EX_USAGE of sysexits.h
	ExitConfig = 78 // EX_CONFIG: the configuration of xwarpd
)

// Main runs a program and exits with its status. The first SIGINT or SIGTERM cancels ctx, the second one kills the
// process.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// IsTerminal reports whether a stream is a terminal. It asks the wrapped writer if the stream has a method Unwrap.
func IsTerminal(stream any) bool {
	if w, ok := stream.(interface{ Unwrap() io.Writer }); ok {
		stream = w.Unwrap()
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// PrintError writes each line of text with the prefix "name: ". name is the program or its command.
func PrintError(w io.Writer, name, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(w, "%s: %s\n", name, plain.Text(line))
	}
}

// Version returns the version line of a program.
func Version(name string) string {
	return fmt.Sprintf("%s %s, %s, %s/%s\n", name, version.Get().Version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

// Parse parses the flags of a service, which accepts no arguments. It implements --version and --help, whose text
// begins with about. If done is true, the service must exit with status.
func Parse(f *flag.FlagSet, about string, args []string, stdout, stderr io.Writer) (status int,
	done bool) {
	f.SetOutput(stderr)
	f.Usage = func() {}
	usage := func() string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n\n", about)
		f.SetOutput(&b)
		f.PrintDefaults()
		return b.String()
	}
	print := func(text string) (int, bool) {
		if _, err := io.WriteString(stdout, text); err != nil {
			PrintError(stderr, f.Name(), err.Error())
			return ExitFailed, true
		}
		return ExitOK, true
	}
	show := f.Bool("version", false, "print the version and exit")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return print(usage())
	case err != nil:
		io.WriteString(stderr, usage())
		return ExitUsage, true
	case f.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", f.Name(), f.Arg(0))
		return ExitUsage, true
	case *show:
		return print(Version(f.Name()))
	}
	return ExitOK, false
}
