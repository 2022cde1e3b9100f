package libxwarpverbs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
)

// daemonOf is the environment variable that makes the test binary run a daemon, which a test can kill. Its value is the
// path of the configuration.
const daemonOf = "XWARP_TEST_DAEMON"

// runDaemon is the main function of a process with daemonOf. path is its value.
func runDaemon(path string) error {
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		return err
	}
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return d.Run(ctx)
}

// process replaces the daemon of e by one in its own process.
func (e *end) process(t *testing.T) *exec.Cmd {
	t.Helper()
	e.daemon.Close()
	os.Remove(e.socket) // left by a daemon that was killed
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonOf+"="+filepath.Join(filepath.Dir(e.socket), "xwarp.toml"))
	cmd.Stderr = os.Stderr
	if err := e.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for stop := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(e.socket); err == nil {
			return cmd
		}
		if time.Now().After(stop) {
			t.Fatal("the daemon does not start")
		}
	}
}

// TestDaemonKilled kills the daemon of a program that has posted requests. The program checks that each of them
// completes with an error.
func TestDaemonKilled(t *testing.T) {
	a, b := pair(t)
	lost := own(t, "lost")
	for _, sanitized := range []bool{false, true} {
		t.Run(fmt.Sprintf("sanitized %v", sanitized), func(t *testing.T) {
			if sanitized {
				needs.Long(t)
				a.sanitize(t)
			}
			d := a.process(t)
			s := b.start(t, lost+" lost s "+b.addr, a)
			b.listening(t, s)
			c := a.start(t, lost+" lost c @", b)
			said := func(word string) {
				a.until(t, c, word, func() bool { return strings.Contains(c.out.String(), word) })
			}
			said("ready")
			stop(t, d) // so that it does not take what is posted
			c.Process.Signal(syscall.SIGUSR1)
			said("posted")
			d.Process.Kill()
			c.wait(t)
			s.Process.Kill() // its peer is silent
			<-s.done
		})
	}
}

// stop stops a daemon by SIGSTOP, and returns when all its threads have stopped.
func stop(t *testing.T, d *exec.Cmd) {
	t.Helper()
	d.Process.Signal(syscall.SIGSTOP)
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(d.Process.Pid, &ws, syscall.WUNTRACED, nil)
	if err != nil || !ws.Stopped() {
		t.Fatalf("the daemon does not stop: %v", err)
	}
}

// TestForkWhileBusy runs a program that forks while another of its threads waits for a reply of the daemon.
func TestForkWhileBusy(t *testing.T) {
	a, b := pair(t)
	d := a.process(t)
	p := a.start(t, own(t, "forkbusy")+" "+a.addr, b)
	said := func(word string) {
		a.until(t, p, word, func() bool { return strings.Contains(p.out.String(), word) })
	}
	said("ready")
	stop(t, d)
	p.Process.Signal(syscall.SIGUSR1)
	said("forked")
	d.Process.Signal(syscall.SIGCONT)
	if out := p.wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
}
