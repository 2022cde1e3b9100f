// Command xwarp is the engine's command line: a demonstration, file transfer, and what shows and checks a host.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run is main with an exit status. The first SIGINT or SIGTERM ends the command in order, the second one at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
