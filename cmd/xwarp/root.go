// Command xwarp is the command line of xwarp: a demo, file transfer, daemon status and host checks.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/bench/demo"
	"xwarp/cmd/program"
	"xwarp/cmd/xwarp/bench"
	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/plain"
)

// Exit statuses.
const (
	exitOK     = program.ExitOK
	exitFailed = program.ExitFailed
	exitUsage  = program.ExitUsage
	exitConfig = program.ExitConfig
)

// usageError is an error in the command line. The exit status is exitUsage.
type usageError = transport.UsageError

// configError is an error in the configuration of xwarpd. The exit status is exitConfig.
type configError struct{ error }

// noFiles turns off completion of file names.
const noFiles = cobra.ShellCompDirectiveNoFileComp

func usagef(format string, args ...any) error {
	return usageError{Err: fmt.Errorf(format, args...)}
}

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(rearrange(root, args))
	out := &output{Writer: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, out.err); err == nil { // help ignores errors of Write
		return exitOK
	}
	text := withoutRepeats(err.Error())
	if !out.used && wantsJSON(cmd, args) {
		printJSON(cmd, failure{document{1, commandName(cmd)}, false, text})
	}
	program.PrintError(stderr, cmd.CommandPath(), text)
	if none, ok := errors.AsType[noProgram](err); ok {
		return none.status
	}
	if _, wrong := errors.AsType[configError](err); wrong {
		return exitConfig
	}
	if _, usage := errors.AsType[usageError](err); usage || errors.Is(err, demo.ErrConfig) {
		fmt.Fprintf(stderr, "See: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// withoutRepeats returns text without repeated lines. When the daemon exits, closing each object reports the same
// error.
func withoutRepeats(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// output is the standard output of a command.
type output struct {
	io.Writer
	used bool  // Write was called
	err  error // first error of Write
}

func (o *output) Write(b []byte) (int, error) {
	o.used = true
	n, err := o.Writer.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// Unwrap returns the writer, for program.IsTerminal.
func (o *output) Unwrap() io.Writer { return o.Writer }

// wantsJSON reports whether cmd can print JSON and args ask for it, even when a flag error stopped parsing before -j.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	f := cmd.Flag("json")
	if f == nil || f == cmd.Root().PersistentFlags().Lookup("json") {
		return false
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return f.Value.String() == "true" || slices.Contains(args, "-j") ||
		slices.Contains(args, "--json")
}

// commandName returns the path of a command without the program name, for JSON.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// commands are the constructors of all commands. Each command accepts -j, or is listed in the map none in
// TestJSONEverywhere. A new JSON object needs a line in documents (jsontopic.go).
var commands = []func(*global) *cobra.Command{
	newDemo,
	newServe,
	newCp,
	newRun,
	newLocalDaemon,
	newStatus,
	newLink,
	newDev,
	newResource,
	newStatistic,
	newMonitor,
	newTop,
	newCapture,
	newConfirm,
	newReload,
	newDoctor,
	newConfig,
	newExplain,
	newBench,
	newBenchEnd,
	newVersion,
	newJSONTopic,
}

// unparsed matches an error of strconv or of time.ParseDuration.
var unparsed = regexp.MustCompile(`strconv\.(\w+): parsing ".*": (invalid syntax|value out of range)|time: .* duration .*`)

// flagError replaces the parser's message in the error text of a flag by what the flag needs, such as "need a number".
func flagError(text string) string {
	return unparsed.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasPrefix(s, "time:"):
			return "need a time with a unit, such as 10s"
		case strings.HasPrefix(s, "strconv.ParseBool"):
			return "need true or false"
		case strings.HasSuffix(s, "value out of range"):
			return "this number is too large or too small"
		}
		return "need a number"
	})
}

// global holds the flags that all commands share.
type global struct{ verbose bool }

func newRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "xwarp",
		Short: "iWARP on any Linux network interface, in user space",
		Long: `xwarp is iWARP (RDMA over TCP) without an RDMA card or a kernel module. An eBPF program steers iWARP connections to
AF_XDP sockets. A user-space TCP places received data directly into registered memory.

All other traffic on the interface stays with the kernel. Most commands need root.`,
		Example: `  sudo xwarp demo                                    # transfer between two namespaces on this machine
  sudo xwarp serve /srv/files --interface eth0       # on one host: export a directory
  sudo xwarp cp disk.img 192.0.2.2:/                 # on another: copy a file to it
  xwarp run -- ib_write_bw -R 192.0.2.2              # run an unmodified RDMA program over xwarpd`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cobra.EnablePrefixMatching = true // as in iproute2: res sh
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{Err: errors.New(flagError(err.Error()))}
	})
	root.PersistentFlags().BoolVarP(&g.verbose, "verbose", "v", false,
		"log connection events to stderr")
	root.PersistentFlags().BoolP("json", "j", false, "print JSON")
	root.Version = program.Version("xwarp")
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().BoolP("version", "V", false, "print the version")
	for _, c := range commands {
		root.AddCommand(c(g))
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if root.PersistentFlags().Changed("json") { // cmd has no --json of its own
			return usagef("%s has no JSON output", cmd.CommandPath())
		}
		return nil
	}
	completeFlags(root)
	return root
}

// logger returns a logger to the command's stderr: warnings only, or everything with --verbose.
func (g *global) logger(cmd *cobra.Command) *slog.Logger {
	level := slog.LevelWarn
	if g.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// noArgs, oneArg and atMostOneArg check the number of arguments, as those of cobra do, and return usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if !cmd.HasParent() {
			return usagef("unknown command %q%s", args[0], likely(cmd, args[0]))
		}
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// completeFlags registers completion for the values of flags that several commands share.
func completeFlags(cmd *cobra.Command) {
	for name, values := range map[string]func() []string{
		"interface": interfaces, "device": interfaces, "transport": func() []string {
			return transport.Names
		},
	} {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), noFiles
		}
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // already registered
		}
	}
	for _, c := range cmd.Commands() {
		completeFlags(c)
	}
}

// likely returns the commands that an ambiguous abbreviation could mean, as ": could be A or B", or "" if there are
// none.
func likely(cmd *cobra.Command, text string) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), text) {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": could be " + strings.Join(names, " or ")
}

func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s is missing", what)
		}
		return atMostOneArg(nil, args)
	}
}

func atMostOneArg(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("unexpected argument %q", args[1])
	}
	return nil
}

func main() { program.Main(execute) }

func newBench(*global) *cobra.Command {
	v := buildVersion()
	name := v.Version
	if v.Revision != "" {
		name += " " + v.Revision
	}
	return bench.New(name)
}

func newBenchEnd(*global) *cobra.Command { return bench.NewEnd() }

// size is a flag value: a number of bytes with an optional unit, such as 64MiB, 1500 or 10MB.
type size int64

// Set implements pflag.Value. It refuses 0.
func (s *size) Set(text string) error {
	n, err := plain.ParseSize(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q must be greater than 0", text)
	}
	*s = size(n)
	return err
}

// String implements pflag.Value.
func (s *size) String() string { return plain.ExactSize(int64(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }
