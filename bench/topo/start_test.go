package topo

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestStartedProcessOutlivesThreads checks that a started process survives the end of all idle threads of Go's runtime.
// Closing an engine ends such threads.
func TestStartedProcessOutlivesThreads(t *testing.T) {
	n := mustNew(t, Options{})
	for name, start := range map[string]func(*exec.Cmd) error{
		"Start":     n.A.Start,
		"StartOn":   func(cmd *exec.Cmd) error { return n.A.StartOn(0, cmd) },
		"StartHere": StartHere,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sleep", "60")
			if err := start(cmd); err != nil {
				t.Fatal(err)
			}
			endThreads()
			// A child that was killed stays a zombie until Wait, so only the result of Wait shows how it ended.
			time.Sleep(50 * time.Millisecond)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) ||
				exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("the process ended with %v, want %v", err, syscall.SIGTERM)
			}
		})
	}
	if err := n.A.Start(exec.Command("/nonexistent")); err == nil {
		t.Error("a program that does not exist was started")
	}
}

// endThreads locks more threads than Go's runtime has idle, and lets all of them end.
func endThreads() {
	var ready, done sync.WaitGroup
	end := make(chan struct{})
	for range 64 {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			ready.Done()
			<-end
		})
	}
	ready.Wait()
	close(end)
	done.Wait()
}
