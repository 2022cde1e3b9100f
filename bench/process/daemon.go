package process

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"xwarp/bench/topo"
)

// Daemon is an xwarpd over AF_XDP on a host of a topology. Every user of this machine may use it.
type Daemon struct {
	Socket string
	dir    string
	cmd    *exec.Cmd
	said   bytes.Buffer
	ended  chan struct{} // closed when err is set; nil before the start
	err    error
}

// daemonWait is the time within which a daemon must accept connections.
const daemonWait = 2 * time.Minute

// StartDaemon starts the xwarpd at path on h, and returns when it serves programs.
func StartDaemon(h *topo.Host, path string) (*Daemon, error) {
	d := &Daemon{cmd: exec.Command(path)}
	if err := d.start(h); err != nil {
		return nil, fmt.Errorf("%w: %s", errors.Join(err, d.Close()), d.said.String())
	}
	return d, nil
}

func (d *Daemon) start(h *topo.Host) (err error) {
	if d.dir, err = os.MkdirTemp("", "xwarp-bench"); err != nil {
		return err
	}
	if err := os.Chmod(d.dir, 0o755); err != nil {
		return err
	}
	d.Socket = filepath.Join(d.dir, "control.sock")
	file := filepath.Join(d.dir, "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\n"+
		"[[interface]]\nname = %q\ntransport = \"xdp\"\n", d.Socket, h.Link.Name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	d.cmd.Args = append(d.cmd.Args, "--config", file)
	d.cmd.Stderr = &d.said
	if err := h.Start(d.cmd); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	for stop := time.Now().Add(daemonWait); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", d.Socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-d.ended:
			return errors.New("xwarpd does not start")
		default:
		}
		if time.Now().After(stop) {
			return fmt.Errorf("xwarpd does not start: %w", err)
		}
	}
}

// Close ends the daemon, waits for it and removes its files.
func (d *Daemon) Close() (err error) {
	if d.ended != nil {
		d.cmd.Process.Signal(syscall.SIGTERM)
		if <-d.ended; d.err != nil {
			err = fmt.Errorf("xwarpd: %w: %s", d.err, d.said.String())
		}
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
