package table

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

// Options are those of every command that fills a table.
type Options struct {
	Only, Try regexp.Regexp // columns and rows
	Script    string        // to run instead of all trials
	Out       string        // the file of the table; empty: none
}

// Flags makes flags of the options; columns is what they are called in the plural.
func (o *Options) Flags(columns, out string) {
	flag.StringVar(&o.Out, "out", out, "the table; empty: none")
	flag.TextVar(&o.Only, "only", regexp.MustCompile(""), columns+" whose name matches")
	flag.TextVar(&o.Try, "try", regexp.MustCompile(""), "rows whose name matches")
	flag.StringVar(&o.Script, "run", "", "a script to run in each machine instead of all trials, "+
		"to look into something")
}

// Main is run as a command of this name, until it is interrupted. The exit status is 1 when it returns an error, or
// that cells have failed.
func Main(name string, run func(context.Context) (failed int, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "%s: %d failed\n", name, failed)
		os.Exit(1)
	}
}
