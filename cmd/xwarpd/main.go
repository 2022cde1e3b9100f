// Command xwarpd is the daemon. It serves iWARP on network interfaces: exported memory and directories to peers, and
// devices to programs on this host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"xwarp/cmd/program"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/preflight"
	"xwarp/engine/plain"
	"xwarp/engine/version"
)

// hangUp is the signal that reloads the configuration.
const hangUp = syscall.SIGHUP

// Exit statuses. systemd does not restart the daemon after exitUsage, exitUnconfirmed and exitConfig.
const (
	exitOK          = program.ExitOK
	exitFailed      = program.ExitFailed
	exitUsage       = program.ExitUsage
	exitRestart     = 69 // EX_UNAVAILABLE: opening a device needs a new process
	exitUnconfirmed = 75 // EX_TEMPFAIL: the operator did not confirm in time that the host is reachable
	exitConfig      = program.ExitConfig
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var src config.Source
	f := flag.NewFlagSet("xwarpd", flag.ContinueOnError)
	f.StringVar(&src.Path, "config", os.Getenv("XWARP_CONFIG"), "configuration `file` ["+
		config.DefaultPath+"]")
	f.Func("set", "set a configuration `key=value`; repeatable", func(v string) error {
		src.Set = append(src.Set, v)
		return nil
	})
	check := f.Bool("check", false, "check the configuration against this host and exit")
	status, done := program.Parse(f, "xwarpd serves iWARP on network interfaces. To see "+
		"its configuration keys, run: xwarp config default", args, stdout, stderr)
	if done {
		return status
	}
	src.Env = os.Environ()
	cfg, err := config.Load(src)
	if err == nil {
		err = cfg.RequireInterface()
	}
	if err != nil {
		program.PrintError(stderr, "xwarpd", err.Error())
		return exitConfig
	}
	if *check {
		for _, err := range preflight.Check(cfg, preflight.User{}, preflight.Daemon{}) {
			program.PrintError(stderr, "xwarpd", err.Error())
			status = exitConfig
		}
		for _, w := range preflight.Warnings(cfg) {
			program.PrintError(stderr, "xwarpd", "warning: "+w)
		}
		return status
	}
	var level slog.LevelVar
	reports := logger(stderr, cfg.Daemon.LogFormat, &level)
	out := daemon.NewLogWriter(stderr, func(lines int) {
		reports.Warn("log lines suppressed", "because", "the reader of the log is too slow",
			"lines", lines)
	})
	defer out.Close()
	log := logger(out, cfg.Daemon.LogFormat, &level)
	if err := serve(ctx, cfg, src, log, &level); err != nil {
		log.Error("xwarpd ends", "error", err)
		if errors.Is(err, daemon.ErrRestart) {
			return exitRestart
		}
		if errors.Is(err, daemon.ErrUnconfirmed) {
			return exitUnconfirmed
		}
		return exitFailed
	}
	return exitOK
}

// logger returns the logger. Format auto is JSON under systemd and text otherwise.
func logger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "auto" {
		format = "text"
		if os.Getenv("JOURNAL_STREAM") != "" && !program.IsTerminal(w) {
			format = "json"
		}
	}
	if format == "json" {
		return slog.New(daemon.LimitLog(slog.NewJSONHandler(plain.JSON(w), o)))
	}
	return slog.New(daemon.LimitLog(slog.NewTextHandler(w, o)))
}

func serve(ctx context.Context, cfg *config.Loaded, src config.Source, log *slog.Logger,
	level *slog.LevelVar) error {
	daemon.LimitGarbage()
	src.Partial = true
	d, err := daemon.New(cfg, daemon.Options{Log: log, Level: level, Version: version.Get().Version,
		SSHAddress: operatorSession("/proc", os.Getpid()),
		Load:       func() (*config.Loaded, error) { return config.Load(src) }})
	if err != nil {
		return err
	}
	d.ReserveProcessors()
	if cfg.Daemon.DropRights {
		if err := d.DropRights(); err != nil {
			return errors.Join(fmt.Errorf("drop capabilities: %w (daemon.drop_rights = false "+
				"keeps them)", err), d.Close())
		}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, hangUp)
	defer signal.Stop(hup)
	go func() {
		for range hup {
			d.ReloadConfig()
		}
	}()
	return d.Run(ctx)
}
